package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/config"
)

// starter starts a gateway that continues after its command has ended.
type starter interface {
	// start starts it in an environment. It returns a channel that gets an error if the gateway
	// ends soon; nil if that is unknown.
	start(ctx context.Context, cfg *config.Resolved, environ []string) (ended <-chan error, err error)
	// how says how it runs, log where it says what is wrong.
	how(cfg *config.Resolved) string
	log(cfg *config.Resolved) string
	// group is the group that may read its secrets; -1 means none.
	group() int
}

// starterOf returns the unit that a package installed for a configuration or, without unit or
// systemd, the background.
func starterOf(ctx context.Context, file string) starter {
	if file == defaultConfig && isDir("/run/systemd/system") && exec.CommandContext(ctx, "systemctl", "cat", unitName).Run() == nil {
		return unit{}
	}
	return &background{}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// unitName is the packages' unit, whose user and group are called postern.
const unitName = "postern.service"

// startTime bounds how long systemd takes to start it.
const startTime = 30 * time.Second

type unit struct{}

func (unit) start(ctx context.Context, _ *config.Resolved, _ []string) (<-chan error, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "enable", "--now", unitName).CombinedOutput()
	if err != nil {
		return nil, failedf("journalctl -u postern says more", "up: systemctl enable --now %s: %w: %s", unitName, err, strings.TrimSpace(string(out)))
	}
	return nil, nil
}

func (unit) how(*config.Resolved) string {
	return "systemd runs it, from now on at every boot; journalctl -u postern shows its log"
}
func (unit) log(*config.Resolved) string { return "journalctl -u postern says more" }

func (unit) group() int {
	g, err := osuser.LookupGroup("postern")
	if err != nil {
		return -1
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return -1
	}
	return id
}

type background struct{ pid int } // the gateway's, once it was started

// logFile returns the path of the gateway's log.
func (*background) logFile(cfg *config.Resolved) string {
	return filepath.Join(cfg.StateDir, "gateway.log")
}

// openLog opens a log for appending.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|noFollow, 0o600)
}

func (b *background) start(_ context.Context, cfg *config.Resolved, environ []string) (<-chan error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("up: find this program: %w", err)
	}
	for dir, mode := range map[string]os.FileMode{cfg.StateDir: 0o700, filepath.Dir(cfg.AdminSocket): 0o750} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, notWritable(err, dir)
		}
	}
	log, err := openLog(b.logFile(cfg))
	if err != nil {
		return nil, notWritable(err, cfg.StateDir)
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("up: %w", err)
	}
	c := exec.Command(self, "gateway", "--config", cfg.File) //nolint:noctx // it outlives this command
	c.Env, c.Stderr, c.SysProcAttr = environ, log, ofItsOwn()
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("up: start the gateway: %w", err)
	}
	b.pid = c.Process.Pid
	ended := make(chan error, 1)
	go func() {
		_ = c.Wait() // the exit status is in the process state
		if why := lastWords(b.logFile(cfg), before); why != "" {
			ended <- errors.New(why)
			return
		}
		ended <- fmt.Errorf("it ended at once (%v)", c.ProcessState)
	}()
	return ended, nil
}

// lastWords returns the errors with which a program ended, from what it wrote to its log after
// an offset; empty if there are none.
func lastWords(log string, after int64) string {
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, after, maxSecret))
	if err != nil {
		return ""
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if why, ok := strings.CutPrefix(strings.TrimSpace(line), "postern: "); ok {
			found = append(found, why)
		}
	}
	return strings.Join(found, "; ")
}

func (b *background) how(cfg *config.Resolved) string {
	return fmt.Sprintf("it runs in the background until this machine stops, or `kill %d`; %s has its log", b.pid, b.logFile(cfg))
}
func (b *background) log(cfg *config.Resolved) string { return b.logFile(cfg) + " says more" }
func (*background) group() int                        { return -1 }
