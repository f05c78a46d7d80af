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

// Layers below the services.
const (
	// layerProbe is an authenticated probe between the gateways' sockets.
	layerProbe = "probe"
	// layerWG is a fresh WireGuard handshake.
	layerWG = "wg"
	// layerOverlay is the echo between the two gateways inside the tunnel.
	layerOverlay = "overlay"
)

// defaultCount makes a command in a script end by itself.
const defaultCount = 4

func (a *app) pingCommand() *cobra.Command {
	var (
		layer, format string
		count         int
		pause         time.Duration
		untilDirect   bool
	)
	c := &cobra.Command{
		Use:   "ping PEER",
		Short: "Measure the round trip to a peer at one layer",
		Long: "Measure how long the peer takes to answer one of these: an authenticated probe to its gateway's UDP " +
			"socket (probe), a new WireGuard handshake (wg), an echo request to its gateway through the tunnel " +
			"(overlay), or a connection through the tunnel to its auth service (auth) or API server (apiServer). " +
			"Exits with 1 if there is no answer or, with --until-direct, if the path is still not direct at the end.",
		Example:           "  postern ping cloud\n  postern ping cloud --layer apiServer -c 20 -o json\n  postern ping cloud --until-direct",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			if count < 0 || pause < 0 {
				return usagef("-c 0 continues until interrupted", "-c and --interval must not be negative")
			}
			p := pinger{app: a, peer: args[0], layer: layer, json: format == formatJSON, untilDirect: untilDirect}
			if untilDirect && !c.Flags().Changed("count") {
				count = 60 // a minute, enough for a second coordinated punch
			}
			return p.run(c.Context(), count, pause)
		},
	}
	f := c.Flags()
	choiceFlag(c, &layer, "layer", "", layerOverlay, "the layer to measure", layerProbe, layerWG, layerOverlay, api.ServiceAuth, api.ServiceAPIServer)
	f.IntVarP(&count, "count", "c", defaultCount, "number of requests; 0 for no limit")
	f.BoolVar(&untilDirect, "until-direct", false, "stop at the first answer over a direct path (60 tries unless -c says otherwise)")
	f.DurationVar(&pause, "interval", time.Second, "time between requests")
	outputFlag(c, &format, formatText, formatJSON) // a line for each reply
	return c
}

// pinger sends echoes and keeps statistics.
type pinger struct {
	app         *app
	peer, layer string
	json        bool
	untilDirect bool

	direct         bool // the last answer came over a direct path
	sent, answered int
	low, high, sum float64 // seconds
	lastError      string
}

// run pings count times. An interrupt ends it with the results so far.
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
		if p.untilDirect && p.direct {
			break
		}
	}
	return p.verdict(ctx)
}

func (p *pinger) took(r api.PingReply) error {
	p.sent++
	p.direct = r.Error == "" && r.Path == api.PathDirect
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
		return p.app.printLine("PingReply", r)
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
	if p.untilDirect && !p.direct {
		return failedf("postern path "+p.peer+" says why", "ping: the path to %s is not direct after %d tries", p.peer, p.sent)
	}
	return nil
}

func milliseconds(seconds float64) string {
	return fmt.Sprintf("%.2fms", math.Round(seconds*1e5)/1e2)
}
