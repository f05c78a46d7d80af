package bench

import (
	"context"
	"errors"
	"runtime"

	"github.com/postern-dev/postern/bench/binary"
	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/bench/load"
)

// The subjects that run two processes of the program that users run, without and with limits for
// each.
const (
	PosternBinary = "postern-binary"
	Postern64MiB  = "postern-64MiB"
	PosternSmall  = "postern-small"
	PosternRoomy  = "postern-roomy"
)

// roomy returns limits that bound nothing but put a gateway into a control group. The scheduler
// gives a group the weight of one process, whatever runs in it. A limited gateway beside other load
// can therefore only be compared with one that is in a group, too.
func roomy() limits.Limits { return limits.Limits{CPUs: float64(runtime.NumCPU())} }

// small is a machine that must be enough for the control plane.
var small = limits.Limits{CPUs: 0.5, Memory: 64 << 20}

// binarySubjects run p.Postern.
func binarySubjects(p Programs) []Subject {
	subject := func(name, about string, own limits.Limits) Subject {
		run := process(p.Self)
		return Subject{
			Name: name, About: about, Limits: own,
			Prepare: func(context.Context) error { return p.hasPostern(own) },
			Run: func(ctx context.Context, spec load.Spec) (load.Result, error) {
				spec.Program = p.Postern
				return run(ctx, spec)
			},
		}
	}
	memory := limits.Limits{Memory: small.Memory}
	return []Subject{
		subject(PosternBinary, "two `postern gateway` processes, joined by a ticket: local listener, tunnel, named service; theirs alone is counted", limits.Limits{}),
		subject(Postern64MiB, "the same, each in a control group with "+memory.String(), memory),
		subject(PosternSmall, "the same, each in a control group with "+small.String(), small),
		subject(PosternRoomy, "the same, each in a control group with all that the machine has", roomy()),
	}
}

// hasPostern returns an error that says what is missing to run gateways with such limits.
func (p Programs) hasPostern(l limits.Limits) error {
	if p.Postern == "" {
		return errors.New("no postern program was named")
	}
	if !l.Any() {
		return nil
	}
	g, err := limits.New(l)
	if err != nil {
		return err
	}
	return g.Close()
}

// ownBinary are the runs of binarySubjects.
func ownBinary() load.Subjects {
	return load.Subjects{PosternBinary: binary.Subject, Postern64MiB: binary.Subject, PosternSmall: binary.Subject, PosternRoomy: binary.Subject}
}
