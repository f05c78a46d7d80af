package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// Formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatText  = "text"
)

func outputFlag(c *cobra.Command, format *string, initial, choices string) {
	c.Flags().StringVarP(format, "output", "o", initial, "output `format`: "+choices)
}

// oneOf reports a flag's value that is none of the choices.
func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return usagef("there are: "+strings.Join(choices, ", "), "%s %q is not known", flag, value)
}

// print writes a document as indented JSON or as YAML.
func (a *app) print(format string, document any) error {
	data, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	if format == formatYAML {
		if data, err = yamlOf(data); err != nil {
			return err
		}
	} else {
		data = append(data, '\n')
	}
	_, err = a.stdout.Write(data)
	return err
}

// printLine writes a document as JSON on one line.
func (a *app) printLine(document any) error {
	return json.NewEncoder(a.stdout).Encode(document)
}

// yamlOf turns JSON into YAML and keeps the order of the fields, which JSON, being a
// part of YAML, carries through the parser.
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

// plainStyle takes off braces, and quotes where none are needed.
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
