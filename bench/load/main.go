package load

import (
	"context"
	"fmt"
	"io"
)

// Subjects are the runs that a program can make, by the subject's name.
type Subjects map[string]func(context.Context, Spec) (Result, error)

// Main makes the run that text, a [Spec], asks for, and writes its result to out.
func (s Subjects) Main(ctx context.Context, text string, out io.Writer) error {
	spec, err := ParseSpec(text)
	if err != nil {
		return err
	}
	run, ok := s[spec.Subject]
	if !ok {
		return fmt.Errorf("run: no subject %q in this program", spec.Subject)
	}
	r, err := run(ctx, spec)
	if err != nil {
		return fmt.Errorf("%s: %w", spec.Subject, err)
	}
	return r.Write(out)
}
