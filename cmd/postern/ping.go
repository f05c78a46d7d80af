package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

// layerOverlay is the echo between the two gateways inside the tunnel.
const layerOverlay = "overlay"

// defaultCount lets a command in a script end by itself.
const defaultCount = 4

func (a *app) pingCommand() *cobra.Command {
	var (
		layer, format string
		count         int
		pause         time.Duration
	)
	c := &cobra.Command{
		Use:   "ping PEER",
		Short: "Measure the round trip to a peer at one layer",
		Long: "Send echoes to the peer's gateway (overlay), to its auth service (auth) or to its API server " +
			"(apiServer), through the tunnel. Exit 1 when none is answered.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("-o", format, formatText, formatJSON); err != nil {
				return err
			}
			if err := oneOf("--layer", layer, layerOverlay, api.ServiceAuth, api.ServiceAPIServer); err != nil {
				return err
			}
			if count < 0 || pause < 0 {
				return usagef("-c 0 goes on until interrupted", "-c and --interval take no negative values")
			}
			p := pinger{app: a, peer: args[0], layer: layer, json: format == formatJSON}
			return p.run(c.Context(), count, pause)
		},
	}
	f := c.Flags()
	f.StringVar(&layer, "layer", layerOverlay, "overlay, auth or apiServer")
	f.IntVarP(&count, "count", "c", defaultCount, "how many; 0 goes on until interrupted")
	f.DurationVar(&pause, "interval", time.Second, "time from one to the next")
	outputFlag(c, &format, formatText, "text or json (a line a reply)")
	return c
}

// pinger sends echoes and keeps the score.
type pinger struct {
	app         *app
	peer, layer string
	json        bool

	sent, answered int
	low, high, sum float64 // seconds
	lastError      string
}

// run pings count times. An interrupt ends it with what there is.
func (p *pinger) run(ctx context.Context, count int, pause time.Duration) error {
	tick := time.NewTicker(max(pause, time.Millisecond))
	defer tick.Stop()
	for seq := 1; count == 0 || seq <= count; seq++ {
		if seq > 1 {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		reply, err := p.app.client().Ping(ctx, p.peer, api.PingRequest{Layer: p.layer, Seq: seq})
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		if err := p.took(reply); err != nil {
			return err
		}
	}
	return p.verdict(ctx)
}

func (p *pinger) took(r api.PingReply) error {
	p.sent++
	if r.Error != "" {
		p.lastError = r.Error
	} else {
		p.answered++
		p.sum += r.RTTSeconds
		p.high = max(p.high, r.RTTSeconds)
		if p.answered == 1 || r.RTTSeconds < p.low {
			p.low = r.RTTSeconds
		}
	}
	if p.json {
		return p.app.printLine(r)
	}
	if r.Error != "" {
		_, err := fmt.Fprintf(p.app.stdout, "%s %s: seq=%d failed: %s\n", p.peer, p.layer, r.Seq, tui.Printable(r.Error))
		return err
	}
	_, err := fmt.Fprintf(p.app.stdout, "%s %s: seq=%d time=%s path=%s remote=%s\n",
		p.peer, p.layer, r.Seq, milliseconds(r.RTTSeconds), tui.Printable(r.Path), tui.Printable(r.Remote))
	return err
}

// verdict prints the summary and decides the exit code.
func (p *pinger) verdict(ctx context.Context) error {
	if !p.json && p.sent > 0 {
		line := fmt.Sprintf("%d of %d answered", p.answered, p.sent)
		if p.answered > 0 {
			line += fmt.Sprintf("; min/avg/max %s/%s/%s", milliseconds(p.low), milliseconds(p.sum/float64(p.answered)), milliseconds(p.high))
		}
		if _, err := fmt.Fprintln(p.app.stdout, line); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p.answered == 0 {
		return failedf("see postern status "+p.peer, "ping: %s did not answer at layer %s: %s", p.peer, p.layer, p.lastError)
	}
	return nil
}

func milliseconds(seconds float64) string {
	return fmt.Sprintf("%.2fms", math.Round(seconds*1e5)/1e2)
}
