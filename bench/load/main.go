package load

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Subject starts the two ends of what is measured. This package generates the load, with the same
// code for all subjects. A subject only uses the spec for the properties of its ends, such as MTU,
// Relay and Via.
type Subject = func(context.Context, Spec) (Ends, error)

// Subjects are a program's subjects by name.
type Subjects map[string]Subject

// Alone makes a run that has no two ends, such as that of a cipher.
type Alone = func(context.Context, Spec) (Result, error)

// Program is what a program can run. A name is only in one of the two.
type Program struct {
	Subjects Subjects
	Alone    map[string]Alone
}

// Main makes the run that text, a [Spec], describes, and writes its result to out.
func (s Subjects) Main(ctx context.Context, text string, out io.Writer) error {
	return Program{Subjects: s}.Main(ctx, text, out)
}

// Main makes the run that text, a [Spec], describes, and writes its result to out.
func (p Program) Main(ctx context.Context, text string, out io.Writer) error {
	spec, err := ParseSpec(text)
	if err != nil {
		return err
	}
	r, err := p.Run(ctx, spec)
	if err != nil {
		return fmt.Errorf("%s: %w", spec.Subject, err)
	}
	return r.Write(out)
}

// Run makes one run of the spec's subject.
func (p Program) Run(ctx context.Context, spec Spec) (Result, error) {
	if alone, ok := p.Alone[spec.Subject]; ok {
		return alone(ctx, spec)
	}
	bringUp, ok := p.Subjects[spec.Subject]
	if !ok {
		return Result{}, fmt.Errorf("no subject %q in this program", spec.Subject)
	}
	began := time.Now()
	ends, err := bringUp(ctx, spec)
	if err != nil {
		return Result{}, err
	}
	if ends.Began.IsZero() {
		ends.Began = began
	}
	return Run(ctx, spec, ends)
}
