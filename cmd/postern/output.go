package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/suggest"
)

// Formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatText  = "text"
)

// output is stdout. It keeps the first write error, which then fails a command that ignored it.
type output struct {
	to  io.Writer
	err error
}

// Write writes to the underlying writer.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// choice is a flag value that is one of a few words.
type choice struct {
	flag    string // as it is typed
	value   *string
	choices []string
}

func (c *choice) String() string { return *c.value }
func (c *choice) Type() string   { return "string" }

// Set refuses other words.
func (c *choice) Set(s string) error {
	*c.value = s
	return oneOf(c.flag, s, c.choices...)
}

// choiceFlag defines a flag whose value is one of the choices, which are listed in help and
// completed by shells. usage precedes them, with the value's name in backquotes.
func choiceFlag(c *cobra.Command, value *string, name, short, initial, usage string, choices ...string) {
	typed := "--" + name
	if short != "" {
		typed = "-" + short
	}
	*value = initial
	last := len(choices) - 1
	usage += ": " + strings.Join(choices[:last], ", ") + " or " + choices[last]
	c.Flags().VarP(&choice{typed, value, choices}, name, short, usage)
	complete(c, name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

func outputFlag(c *cobra.Command, format *string, choices ...string) {
	choiceFlag(c, format, "output", "o", choices[0], "output `format`", choices...)
}

// oneOf returns an error for a value that is none of the choices.
func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	hint := "there are: " + strings.Join(choices, ", ")
	if word := suggest.Nearest(value, choices); word != "" {
		hint = "did you mean " + word + "? T" + hint[1:]
	}
	return usagef(hint, "%s %q is not known", flag, value)
}

// print writes a document as indented JSON or as YAML.
func (a *app) print(format, kind string, document any) error {
	data, err := headed(kind, document)
	if err != nil {
		return err
	}
	if format == formatYAML {
		if data, err = yamlOf(data); err != nil {
			return err
		}
	} else {
		var indented bytes.Buffer
		if err := json.Indent(&indented, data, "", "  "); err != nil {
			return fmt.Errorf("write the document: %w", err)
		}
		indented.WriteByte('\n')
		data = indented.Bytes()
	}
	_, err = a.stdout.Write(data)
	return err
}

// printLine writes a document as JSON on one line.
func (a *app) printLine(kind string, document any) error {
	data, err := headed(kind, document)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(append(data, '\n'))
	return err
}

// headed returns a document as JSON, with apiVersion and kind inserted at the beginning unless it
// has them. A list is not changed, because scripts rely on that.
func headed(kind string, document any) ([]byte, error) {
	data, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("write the document: %w", err)
	}
	if data[0] != '{' {
		return data, nil
	}
	var has struct{ APIVersion, Kind *string }
	if err := json.Unmarshal(data, &has); err != nil {
		return nil, fmt.Errorf("write the document: %w", err)
	}
	var head []string
	if has.APIVersion == nil {
		head = append(head, fmt.Sprintf(`"apiVersion":%q`, api.Version))
	}
	if has.Kind == nil {
		head = append(head, fmt.Sprintf(`"kind":%q`, kind))
	}
	if rest := string(data[1 : len(data)-1]); rest != "" {
		head = append(head, rest)
	}
	return []byte("{" + strings.Join(head, ",") + "}"), nil
}

// yamlOf converts JSON to YAML and keeps the order of the fields: JSON is valid YAML, whose
// parser preserves it.
func yamlOf(data []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return nil, fmt.Errorf("turn JSON into YAML: %w", err)
	}
	plainStyle(&n)
	out, err := yaml.Marshal(&n)
	if err != nil {
		return nil, fmt.Errorf("turn JSON into YAML: %w", err)
	}
	return out, nil
}

// plainStyle removes braces, and quotes that are not needed.
func plainStyle(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		plainStyle(c)
	}
}

// readAllBounded reads at most maxSecret bytes.
func readAllBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSecret+1))
	if err == nil && len(data) > maxSecret {
		err = fmt.Errorf("larger than %d bytes", maxSecret)
	}
	return data, err
}

func contextWithTimeout(c *cobra.Command, d time.Duration) (context.Context, context.CancelFunc) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, d)
}
