package load

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Subject brings up the two ends of what is measured. What is sent through them is this
// package's affair, the same lines for all. It may ask of the spec what the ends are to
// be like: MTU, Relay, Via.
type Subject = func(context.Context, Spec) (Ends, error)

// Subjects are those of a program, by their names.
type Subjects map[string]Subject

// Alone makes a run that is no load between two ends: of a cipher, say.
type Alone = func(context.Context, Spec) (Result, error)

// Program is what a program can run. No name is in both.
type Program struct {
	Subjects Subjects
	Alone    map[string]Alone
}

// Main makes the run that text, a [Spec], asks for, and writes its result to out.
func (s Subjects) Main(ctx context.Context, text string, out io.Writer) error {
	return Program{Subjects: s}.Main(ctx, text, out)
}

// Main makes the run that text, a [Spec], asks for, and writes its result to out.
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

// Run makes one run of the subject that the spec names.
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
