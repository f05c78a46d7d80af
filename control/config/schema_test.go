package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/control/api"
)

var update = flag.Bool("update", false, "write schema.json")

// schemaOf is the part of JSON Schema (draft 7) that the types need.
type schemaOf struct {
	Schema      string               `json:"$schema,omitempty"`
	Title       string               `json:"title,omitempty"`
	Description string               `json:"description,omitempty"`
	Type        any                  `json:"type,omitempty"`
	Enum        []any                `json:"enum,omitempty"`
	Pattern     string               `json:"pattern,omitempty"`
	Minimum     *int                 `json:"minimum,omitempty"`
	Maximum     *int                 `json:"maximum,omitempty"`
	Required    []string             `json:"required,omitempty"`
	Properties  map[string]*schemaOf `json:"properties,omitempty"`
	// Additional is false, or the schema of a map's values.
	Additional any       `json:"additionalProperties,omitempty"`
	Items      *schemaOf `json:"items,omitempty"`
}

// The values of fields with a fixed set of them, by path; a field of the header has one.
var enums = map[string][]string{
	"apiVersion":                           {api.Version},
	"kind":                                 {"Gateway"},
	"spec.discovery.portMapping.mode":      {PortMappingAuto, PortMappingOff},
	"spec.discovery.turnServers.transport": {"auto", "udp", "tcp", "tls"},
	"spec.peers.mode":                      {api.ModeInBand, api.ModeOutOfBand},
	"spec.services.named.proxyProtocol":    {string(api.ProxyV2)},
}

// durations matches what time.ParseDuration accepts, without a sign.
const durations = `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`

// describer returns the schema of a type. A new kind of field must be described here, just as the
// decoder must support it.
type describer struct {
	t *testing.T
	// comments are the comments of types, and of fields by TYPE.FIELD.
	comments map[string]string
	settable map[string]bool
	used     map[string]bool // of enums
}

func newDescriber(t *testing.T) *describer {
	d := &describer{t: t, comments: map[string]string{}, settable: map[string]bool{}, used: map[string]bool{}}
	for _, s := range Settings() {
		d.settable[s.Path] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../api/gateway.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, spec := range g.Specs {
			s := spec.(*ast.TypeSpec)
			d.comments[s.Name.Name] = oneLine(g.Doc.Text())
			fields, ok := s.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range fields.Fields.List {
				for _, name := range f.Names {
					d.comments[s.Name.Name+"."+name.Name] = oneLine(f.Doc.Text())
				}
			}
		}
	}
	return d
}

// of describes a type at a path, in which lists have no index.
func (d *describer) of(t reflect.Type, path string) *schemaOf {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[api.Duration]() {
		return &schemaOf{Type: "string", Pattern: durations}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		d.t.Fatalf("%s: how a %s is written is not described", path, t)
	}
	switch t.Kind() {
	case reflect.String:
		d.used[path] = true
		s := &schemaOf{Type: "string"}
		for _, word := range enums[path] {
			s.Enum = append(s.Enum, word)
		}
		return s
	case reflect.Bool:
		return &schemaOf{Type: "boolean"}
	case reflect.Int:
		return &schemaOf{Type: "integer"}
	case reflect.Uint16:
		return &schemaOf{Type: "integer", Minimum: new(0), Maximum: new(math.MaxUint16)}
	case reflect.Slice:
		return &schemaOf{Type: "array", Items: d.of(t.Elem(), path)}
	case reflect.Map:
		return &schemaOf{Type: "object", Additional: d.of(t.Elem(), path)}
	case reflect.Struct:
		return d.object(t, path)
	}
	d.t.Fatalf("%s: a %s is not described", path, t)
	return nil
}

func (d *describer) object(t reflect.Type, path string) *schemaOf {
	s := &schemaOf{Type: "object", Properties: map[string]*schemaOf{}, Additional: false}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		at := join(path, name)
		p := d.of(f.Type, at)
		p.Description = d.comments[t.Name()+"."+f.Name]
		if of := f.Type; p.Description == "" {
			for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
				of = of.Elem()
			}
			p.Description = d.comments[of.Name()]
		}
		s.Properties[name] = p
		// A flag or a variable may set it instead. A mapping may be empty, unless something in it
		// is required.
		if options == "" && f.Type.Kind() != reflect.Struct && !d.settable[at] {
			s.Required = append(s.Required, name)
			continue
		}
		p.Type = []any{p.Type, "null"} // which leaves it unset
		if p.Enum != nil {
			p.Enum = append(p.Enum, nil)
		}
	}
	slices.Sort(s.Required)
	return s
}

func TestTheSchemaIsThatOfTheTypes(t *testing.T) {
	const file = "schema.json"
	d := newDescriber(t)
	s := d.of(reflect.TypeFor[api.Gateway](), "")
	s.Schema, s.Title, s.Description = "http://json-schema.org/draft-07/schema#", "postern: gateway.yaml", d.comments["Gateway"]
	for path := range enums {
		if !d.used[path] {
			t.Errorf("%s, which has few values, is no field", path)
		}
	}
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(Schema(), want.Bytes()) {
		t.Errorf("%s is not what the types of control/api say: go test ./control/config -run TestTheSchemaIs -update", file)
	}
}

// compiled returns the schema as an editor uses it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("gateway.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("gateway.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fits validates a file against the schema.
func fits(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(document)
}

// Files that the gateway accepts fit the schema, and mistakes in names, types and words do not.
func TestTheSchemaAgreesWithTheGateway(t *testing.T) {
	s := compiled(t)
	for name, text := range map[string]string{
		"all fields": full, "the least": head, "null": head + "spec:\n  services: {auth: {outOfBand: {listen: \":1\", tls: null}}}\n",
		"named by a variable": "apiVersion: postern.dev/v1alpha1\nkind: Gateway\n",
	} {
		if err := fits(t, s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, spec := range []string{
		"lisen: {port: 1}", "listen: {port: 70000}", "listen: {port: \"1\"}", "mtu: many", "peers: cloud",
		"peers: [{publicKey: x}]", "peers: [{name: a, mode: Inband}]", "peers: [{name: a, stock: maybe}]",
		"discovery: {keepalive: 20}", "discovery: {keepalive: soon}", "discovery: {portMapping: {mode: never}}",
		"discovery: {turnServers: [{username: u}]}", "services: {apiServer: {}}", "services: {auth: {issuer: {localCa: {}}}}",
	} {
		text := head + "spec:\n  " + spec + "\n"
		if fits(t, s, text) == nil {
			t.Errorf("the schema takes %q", spec)
		}
		if _, err := load("gateway.yaml", []byte(text), Overrides{}, noFiles{}); err == nil {
			t.Errorf("the gateway takes %q", spec)
		}
	}
	for _, header := range []string{"kind: Gateway", "apiVersion: postern.dev/v1alpha1", "apiVersion: v1\nkind: Gateway", "apiVersion: postern.dev/v1alpha1\nkind: Peer"} {
		if fits(t, s, header+"\n") == nil {
			t.Errorf("the schema takes the header %q", header)
		}
	}
}

// Files name the schema for editors, where a package has it.
var languageServer = regexp.MustCompile(`(?m)^# yaml-language-server: \$schema=\S+gateway\.schema\.json$`)

func TestTheExampleOfThePackages(t *testing.T) {
	text, err := os.ReadFile("../../cmd/postern/deploy/package/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !languageServer.Match(text) {
		t.Error("it does not name its schema")
	}
	if err := fits(t, compiled(t), string(text)); err != nil {
		t.Error(err)
	}
	// Examples that are commented out must be right, too.
	shown := regexp.MustCompile(`(?m)^( +)# ([a-zA-Z]+: [\[{].*)$`).ReplaceAllString(string(text), "$1$2")
	if shown == string(text) {
		t.Fatal("nothing is commented out")
	}
	if err := fits(t, compiled(t), shown); err != nil {
		t.Errorf("%v in\n%s", err, shown)
	}
	if _, err := load("gateway.yaml", text, Overrides{}, noFiles{}); err == nil || !strings.Contains(err.Error(), "metadata.name: missing") {
		t.Errorf("without a name: %v", err)
	}
	if _, err := load("gateway.yaml", text, Overrides{Flags: map[string]string{"name": "edge"}}, noFiles{}); err != nil {
		t.Errorf("the gateway does not take it: %v", err)
	}
}
