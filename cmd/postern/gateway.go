package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/config"
)

// memoryShare of the cgroup's limit is what the Go runtime may use. The rest is for the kernel's
// socket buffers and for what the runtime does not count.
const memoryShare = 0.9

// drainTime is how long open connections may continue after SIGTERM. By default Kubernetes kills
// after 30 s and systemd after 90 s.
const drainTime = 10 * time.Second

func (a *app) gatewayCommand() *cobra.Command {
	var file, format, level string
	settings := map[string]*string{}
	c := &cobra.Command{
		Use: "gateway --config FILE", SuggestFor: []string{"run", "start", "serve", "daemon"},
		Short: "Run a gateway",
		Long: "Run a gateway until it gets SIGTERM. SIGHUP reloads the configuration: unchanged settings are left " +
			"alone, and a file with an error changes nothing.",
		Example: "  postern gateway --config /etc/postern/gateway.yaml\n  POSTERN_LISTEN_PORT=0 postern gateway --config gateway.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := a.logger(format, level)
			if err != nil {
				return err
			}
			if file == "" {
				return usagef("--config FILE, or POSTERN_CONFIG", "gateway: which configuration?")
			}
			overrides := config.Overrides{Flags: map[string]string{}, LookupEnv: os.LookupEnv}
			for name, value := range settings {
				if c.Flags().Changed(name) {
					overrides.Flags[name] = *value
				}
			}
			if c.Flags().Changed("socket") {
				overrides.Flags["socket"] = a.socket
			}
			load := func() (*config.Resolved, error) { return loadConfig(file, overrides) }
			return a.gateway(c.Context(), load, log)
		},
	}
	f := c.Flags()
	f.StringVar(&file, "config", a.getenv("POSTERN_CONFIG"), "the configuration `FILE`")
	choiceFlag(c, &format, "log-format", "", or(a.getenv("POSTERN_LOG_FORMAT"), formatText), "log format", formatText, formatJSON)
	f.StringVar(&level, "log-level", or(a.getenv("POSTERN_LOG_LEVEL"), "info"), "debug, info, warn or error")
	for _, s := range config.Settings() {
		if s.Flag != "socket" { // all commands have that one
			settings[s.Flag] = f.String(s.Flag, "", s.Usage)
		}
	}
	return c
}

func or(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}

// logger returns a logger that writes to stderr.
func (a *app) logger(format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("there are: debug, info, warn, error", "--log-level %q is not known", level)
	}
	if err := oneOf("--log-format", format, formatText, formatJSON); err != nil { // of the environment
		return nil, err
	}
	o := &slog.HandlerOptions{Level: l}
	if format == formatJSON {
		return slog.New(slog.NewJSONHandler(a.stderr, o)), nil
	}
	return slog.New(slog.NewTextHandler(a.stderr, o)), nil
}

// gateway reads the configuration and runs until ctx ends. SIGTERM is the normal way to end a
// gateway, and no failure.
func (a *app) gateway(ctx context.Context, load func() (*config.Resolved, error), log *slog.Logger) error {
	setLibraryLogs(log)
	cfg, err := load()
	if err != nil {
		return err
	}
	logWarnings(log, cfg)
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(memlimit.FromCgroup))
	if err != nil { // there is no cgroup, or none with a readable limit
		log.Debug("failed to read the memory limit", "error", err)
	} else {
		log.Debug("memory limit", "bytes", limit)
	}
	err = runGateway(ctx, cfg, load, log)
	var by interrupted
	if err == nil && errors.As(context.Cause(ctx), &by) && by.signal == os.Interrupt {
		return by
	}
	return err
}

func logWarnings(log *slog.Logger, cfg *config.Resolved) {
	for _, w := range cfg.Warnings {
		log.Warn("configuration", "problem", w.Error())
	}
}
