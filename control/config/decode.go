package config

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/control/api"
)

// yamlLine finds the line in the parser's own errors, which carry it only as text.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// decoder turns a YAML tree into the document's types. The library's own strict mode
// would do, but for the line and path of every field, which origins and all later
// checks need.
type decoder struct {
	file     string
	origins  map[string]Origin
	problems Problems
}

// decode reads exactly one document. The problems are in the order of the file.
func decode(file string, data []byte) (*api.Gateway, map[string]Origin, Problems) {
	d := &decoder{file: file, origins: map[string]Origin{"": {FromFile, file, 1}}}
	doc := new(api.Gateway)
	root, ok := d.parse(data)
	if !ok {
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
		d.syntax(err)
		return nil, false
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		d.fail(second.Line, "", "a second document begins here (one file holds one gateway; put it into its own)")
		return nil, false
	case !errors.Is(err, io.EOF):
		d.syntax(err)
		return nil, false
	}
	if len(doc.Content) != 1 {
		d.fail(1, "", "the file holds no document")
		return nil, false
	}
	return doc.Content[0], true
}

// syntax reports what the parser objects to, at the line it names.
func (d *decoder) syntax(err error) {
	line, msg := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = err.Error()[len(m[0]):]
	}
	d.fail(line, "", "not YAML: %s (check indentation and quotes)", oneLine(msg))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func (d *decoder) fail(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{
		Origin: Origin{FromFile, d.file, line}, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

// value decodes one node into v. A null leaves v unset, as if the field were absent.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		d.fail(n.Line, path, "aliases are not accepted (write the value out)")
		return
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
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

// mapping decodes into a struct: every key must be one of its fields, once.
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
			d.fail(key.Line, at, "unknown field (%s)", suggest(key.Value, fields))
			return
		}
		d.origins[at] = Origin{FromFile, d.file, key.Line}
		d.value(value, v.Field(i), at)
	})
}

// table decodes into a map of strings, whose keys are the user's own.
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

// keys calls f for every pair of a mapping whose key is a text that was not there yet.
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

// join adds a field to a path. A name that is no plain word is quoted and cut, for it
// ends up on a terminal.
func join(path, field string) string {
	if !plainWord.MatchString(field) {
		field = fmt.Sprintf("%.40q", field)
	}
	if path == "" {
		return field
	}
	return path + "." + field
}

// suggest names the field that was probably meant, or all there are.
func suggest(got string, fields map[string]int) string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	sort.Strings(names)
	best, distance := "", 3 // More than two slips are another word.
	for _, name := range names {
		if n := editDistance(strings.ToLower(got), strings.ToLower(name)); n < distance {
			best, distance = name, n
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("did you mean %s?", best)
	case len(names) == 0:
		return "none is known here"
	}
	return "known here: " + strings.Join(names, ", ")
}

// editDistance is Levenshtein's, bounded: names longer than any field are far away.
func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
