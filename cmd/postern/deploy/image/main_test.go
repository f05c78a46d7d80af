package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	env := func(value string) func(string) string {
		return func(name string) string {
			if name == "SOURCE_DATE_EPOCH" {
				return value
			}
			return ""
		}
	}
	o, err := parse([]string{"-o", "x.tar", "--version", "v1.2.3"}, env("1700000000"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.out != "x.tar" || o.name != "localhost/postern:v1.2.3" || !slices.Equal(o.arches, []string{"amd64", "arm64"}) || !o.created.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("got %+v", o)
	}
	o, err = parse([]string{"-o", "x.tar", "--arch", "arm64", "--name", "example.com/p:1"}, env(""), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.name != "example.com/p:1" || !slices.Equal(o.arches, []string{"arm64"}) || !o.created.IsZero() {
		t.Errorf("got %+v", o)
	}
	for _, c := range []struct {
		args  []string
		epoch string
		want  string
	}{
		{nil, "", "-o FILE"},
		{[]string{"-o", "x", "y"}, "", `"y"`},
		{[]string{"-o", "x"}, "yesterday", `"yesterday"`},
		{[]string{"-unknown"}, "", "unknown"},
	} {
		if _, err := parse(c.args, env(c.epoch), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v with epoch %q: got %v, want an error with %s", c.args, c.epoch, err, c.want)
		}
	}
}
