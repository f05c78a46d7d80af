package config

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/suggest"
)

// yamlLine finds the line in the parser's errors, which have it only as text.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// maxWord is how much is shown of a field's name that is not plain: all of a port of a service.
const maxWord = 220

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// decoder decodes a YAML tree into the document's types. The library's strict mode does not provide
// the line and path of every field, which origins and all later checks need.
type decoder struct {
	file     string
	origins  map[string]Origin
	problems Problems
}

// decode reads exactly one document. The problems are in file order.
func decode(file string, data []byte) (*api.Gateway, map[string]Origin, Problems) {
	d := &decoder{file: file, origins: map[string]Origin{"": {FromFile, file, 1}}}
	doc := new(api.Gateway)
	root, ok := d.parse(data)
	if !ok || !d.header(root) {
		return doc, d.origins, d.problems
	}
	d.value(root, reflect.ValueOf(doc).Elem(), "")
	return doc, d.origins, d.problems
}

func (d *decoder) parse(data []byte) (*yaml.Node, bool) {
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		d.fail(1, "", "the file is empty (want apiVersion: %s, kind: Gateway, metadata and spec)", api.Version)
		return nil, false
	} else if err != nil {
		d.syntax(data, err)
		return nil, false
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		d.fail(second.Line, "", "a second document begins here (one file holds one gateway; put it into its own)")
		return nil, false
	case !errors.Is(err, io.EOF):
		d.syntax(data, err)
		return nil, false
	}
	if len(doc.Content) != 1 {
		d.fail(1, "", "the file holds no document")
		return nil, false
	}
	return doc.Content[0], true
}

// header reports whether the document is one of this version. Fields of other versions cannot be
// judged.
func (d *decoder) header(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		return true // its type error says what it is
	}
	for _, h := range []struct{ field, want, other string }{
		{"apiVersion", api.Version, "is not known to this version"},
		{"kind", "Gateway", "is no configuration of a gateway"},
	} {
		i := 0
		for i < len(root.Content) && root.Content[i].Value != h.field {
			i += 2
		}
		switch {
		case i >= len(root.Content) || root.Content[i+1].ShortTag() == "!!null":
			d.fail(1, h.field, "missing (add %s: %s)", h.field, h.want)
		case root.Content[i+1].Kind == yaml.ScalarNode && root.Content[i+1].Value != h.want:
			d.fail(root.Content[i].Line, h.field, "%.64q %s (want %s)", root.Content[i+1].Value, h.other, h.want)
		}
	}
	return len(d.problems) == 0
}

// tabbed finds indentation with a tab in it.
var tabbed = regexp.MustCompile(`^ *\t`)

// syntax reports a parser error at the line it names.
func (d *decoder) syntax(data []byte, err error) {
	line, msg := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = err.Error()[len(m[0]):]
	}
	lines := strings.Split(string(data), "\n")
	for n := max(1, line-1); n <= min(line+1, len(lines)); n++ { // it may have noticed late
		if tabbed.MatchString(lines[n-1]) {
			d.fail(n, "", "indented with a tab, but YAML allows only spaces (replace the tab by spaces)")
			return
		}
	}
	d.fail(line, "", "not YAML: %s (check indentation and quotes)", oneLine(msg))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func (d *decoder) fail(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{
		Origin: Origin{FromFile, d.file, line}, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

// typographic are the quotes that editors and chat programs put in place of " and '.
const typographic = "“”„‟‘’‚«»"

// value decodes one node into v. A null leaves v unset, as if the field were absent.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		d.fail(n.Line, path, "aliases are not accepted (write the value out)")
		return
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && n.Value != strings.Trim(n.Value, typographic) {
		d.fail(n.Line, path, "%s has typographic quotes, which YAML takes for letters (use \" or ')", strconv.Quote(n.Value))
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(n, u, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, v, path)
	case reflect.Map:
		d.table(n, v, path)
	case reflect.Slice:
		d.sequence(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) text(n *yaml.Node, u encoding.TextUnmarshaler, path string) {
	if n.Kind != yaml.ScalarNode {
		d.wrongType(n, path, "a value such as 24h")
		return
	}
	if err := u.UnmarshalText([]byte(n.Value)); err != nil {
		d.fail(n.Line, path, "%s", oneLine(err.Error()))
	}
}

// mapping decodes into a struct: every key must be one of its fields, and unique.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, path, "a mapping of fields")
		return
	}
	fields := map[string]int{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		fields[name] = i
	}
	d.keys(n, path, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		i, known := fields[key.Value]
		if !known {
			d.fail(key.Line, at, "unknown field (%s)", suggested(key.Value, fields))
			return
		}
		d.origins[at] = Origin{FromFile, d.file, key.Line}
		d.value(value, v.Field(i), at)
	})
}

// table decodes into a map of strings with arbitrary keys.
func (d *decoder) table(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, path, "a mapping of names to values")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	d.keys(n, path, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		d.origins[at] = Origin{FromFile, d.file, key.Line}
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(value, elem, at)
		v.SetMapIndex(reflect.ValueOf(key.Value), elem)
	})
}

// keys calls f for every pair of a mapping with a new text key.
func (d *decoder) keys(n *yaml.Node, path string, f func(key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.fail(key.Line, path, "a field's name must be a plain text")
			continue
		}
		if first, twice := seen[key.Value]; twice {
			d.fail(key.Line, join(path, key.Value), "given twice, first in line %d (remove one)", first)
			continue
		}
		seen[key.Value] = key.Line
		f(key, value)
	}
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.wrongType(n, path, "a list")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.origins[at] = Origin{FromFile, d.file, item.Line}
		d.value(item, v.Index(i), at)
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.String:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			d.wrongType(n, path, "a text")
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			d.wrongType(n, path, "true or false")
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Uint16:
		if i, ok := d.integer(n, path, 0, math.MaxUint16); ok {
			v.SetUint(uint64(i))
		}
	case reflect.Int:
		if i, ok := d.integer(n, path, math.MinInt32, math.MaxInt32); ok {
			v.SetInt(i)
		}
	default:
		d.fail(n.Line, path, "cannot be set from a file")
	}
}

func (d *decoder) integer(n *yaml.Node, path string, low, high int64) (int64, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		d.wrongType(n, path, "a whole number")
		return 0, false
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || i < low || i > high {
		d.fail(n.Line, path, "%s is not a number from %d to %d", n.Value, low, high)
		return 0, false
	}
	return i, true
}

func (d *decoder) wrongType(n *yaml.Node, path, want string) {
	got, hint := "a mapping", ""
	switch n.Kind {
	case yaml.SequenceNode:
		got = "a list"
	case yaml.ScalarNode:
		got = map[string]string{"!!str": "the text", "!!int": "the number", "!!float": "the number", "!!bool": "the truth value"}[n.ShortTag()]
		if got == "" {
			got = "the value"
		}
		got += " " + strconv.Quote(n.Value)
		if want == "a text" {
			hint = " (put it in quotes)"
		}
	}
	d.fail(n.Line, path, "want %s, got %s%s", want, got, hint)
}

// join adds a field to a path. A name that is not a plain word is quoted and cut, since it ends up
// on a terminal.
func join(path, field string) string {
	if !plainWord.MatchString(field) {
		field = fmt.Sprintf("%.*q", maxWord, field)
	}
	if path == "" {
		return field
	}
	return path + "." + field
}

// suggested returns the field that was probably meant, or all there are.
func suggested(got string, fields map[string]int) string {
	if len(fields) == 0 {
		return "none is known here"
	}
	return suggest.Hint(got, slices.Collect(maps.Keys(fields)), "known here: ")
}
