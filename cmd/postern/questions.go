package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/postern-dev/postern/control/ticket"
)

// maxMistakes is how many invalid answers a question may get.
const maxMistakes = 5

var errNoAnswer = errors.New("the input ended, and nothing was changed")

// questions are asked at a terminal. Input that was typed ahead, or pasted with an answer,
// answers the next question.
type questions struct {
	ctx   context.Context
	out   io.Writer
	lines chan string
}

// newQuestions starts to read. A read from a terminal cannot be cancelled: after a signal it ends
// with the process.
func newQuestions(ctx context.Context, in io.Reader, out io.Writer) *questions {
	q := &questions{ctx: ctx, out: out, lines: make(chan string)}
	go func() {
		defer close(q.lines)
		for s := bufio.NewScanner(io.LimitReader(in, maxSecret)); s.Scan(); {
			select {
			case q.lines <- strings.TrimSpace(s.Text()):
			case <-ctx.Done():
				return
			}
		}
	}()
	return q
}

// line asks once.
func (q *questions) line(question string) (string, error) {
	fmt.Fprint(q.out, question)
	select {
	case line, ok := <-q.lines:
		if !ok {
			fmt.Fprintln(q.out)
			return "", failedf("", "up: %w", errNoAnswer)
		}
		return line, nil
	case <-q.ctx.Done():
		return "", context.Cause(q.ctx)
	}
}

// until repeats a question until the answer is valid. An empty answer means the default, if there
// is one.
func (q *questions) until(question, otherwise string, answer *string, check func(string) error) error {
	if otherwise != "" {
		question += " [" + otherwise + "]"
	}
	var err error
	for range maxMistakes {
		var line string
		if line, err = q.line(question + "? "); err != nil {
			return err
		}
		*answer = or(line, otherwise)
		if err = check(*answer); err == nil {
			return nil
		}
		fmt.Fprintf(q.out, "%v\n", err)
	}
	return usagef("", "up: %w", err)
}

// yes asks for yes or no.
func (q *questions) yes(question string, otherwise bool) (bool, error) {
	choices := " [y/N]"
	if otherwise {
		choices = " [Y/n]"
	}
	var answer string
	err := q.until(question+choices, "", &answer, func(s string) error {
		switch strings.ToLower(s) {
		case "", "y", "yes", "n", "no":
			return nil
		}
		return errors.New("answer y or n")
	})
	if answer == "" {
		return otherwise, err
	}
	return strings.HasPrefix(strings.ToLower(answer), "y"), err
}

// ticket asks for a ticket, which may span several lines; empty means none.
func (q *questions) ticket() (string, error) {
	var pasted strings.Builder
	question := "Ticket of the other gateway (enter creates one here)? "
	for {
		line, err := q.line(question)
		if err != nil {
			return "", err
		}
		question = ""
		if line == "" && pasted.Len() == 0 {
			return "", nil
		}
		pasted.WriteString(line + "\n")
		found := ticket.Find(pasted.String())
		_, err = ticket.Decode(found)
		if err == nil {
			return found, nil
		}
		if line == "" { // the end of the pasted text
			fmt.Fprintf(q.out, "%v\n", err)
			pasted.Reset()
			question = "Ticket of the other gateway (enter creates one here)? "
		}
	}
}
