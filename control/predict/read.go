package predict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/control/api"
)

// maxFile bounds the input, in bytes: enough for two Status documents of many peers.
const maxFile = 4 << 20

// document is a document of a YAML file: a cluster, or a list of them.
type document struct {
	Clusters []Exposure `yaml:"clusters"`
	Exposure `yaml:",inline"`
}

// ReadClusters parses the exposures of clusters in a file: YAML as in the package's documentation,
// or the concatenated JSON of `postern status -o json` or `postern netcheck -o json`. name is the
// file's name, for errors, which also contain the line.
func ReadClusters(name string, data []byte) ([]Exposure, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %d bytes, and at most %d are read", name, len(data), maxFile)
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) && bytes.Contains(data, []byte(`"kind"`)) {
		return readJSON(name, data)
	}
	return readYAML(name, data)
}

// Pair returns the two clusters of a prediction. name is their source.
func Pair(name string, found []Exposure) (a, b Exposure, err error) {
	switch {
	case len(found) != 2:
		return a, b, fmt.Errorf("%s: it describes %d clusters, and a prediction needs two (two documents, or clusters: [ … ])", name, len(found))
	case found[0].Name == found[1].Name:
		return a, b, fmt.Errorf("%s: both clusters are called %s (give them different names)", name, found[0].Name)
	}
	return found[0], found[1], nil
}

func readYAML(name string, data []byte) (out []Exposure, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	for {
		var d document
		err := dec.Decode(&d)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s", name, plain(err))
		}
		all := d.Clusters
		if d.Name != "" || len(all) == 0 {
			all = append(all, d.Exposure)
		}
		for _, e := range all {
			if err := e.Check(); err != nil {
				return nil, fmt.Errorf("%s: cluster %d: %w", name, len(out)+1, err)
			}
			out = append(out, e)
		}
	}
}

var unknownField = regexp.MustCompile(`^line (\d+): field (.+) not found in type .*$`)

// plain returns the library's errors as one line, without the names of our types.
func plain(err error) string {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return strings.Join(strings.Fields(fmt.Sprintf("%q", strings.TrimPrefix(err.Error(), "yaml: "))), " ")
	}
	var out []string
	for _, e := range wrong.Errors {
		if m := unknownField.FindStringSubmatch(e); m != nil {
			e = fmt.Sprintf("line %s: unknown field %.40q", m[1], m[2])
		}
		out = append(out, strings.ReplaceAll(e, "predict.", ""))
	}
	return strings.Join(strings.Fields(strings.Join(out, "; ")), " ")
}

func readJSON(name string, data []byte) (out []Exposure, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: not JSON: %q", name, err.Error())
		}
		e, err := fromJSON(raw, len(out)+1)
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", name, len(out)+1, err)
		}
		out = append(out, e)
	}
}

func fromJSON(raw json.RawMessage, number int) (Exposure, error) {
	var head struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Exposure{}, fmt.Errorf("%q", err.Error())
	}
	var e Exposure
	switch head.Kind {
	case "Status":
		var s api.Status
		if err := json.Unmarshal(raw, &s); err != nil {
			return Exposure{}, fmt.Errorf("%q", err.Error())
		}
		e = FromStatus(s)
	case "NetCheck":
		var n api.NetCheck
		if err := json.Unmarshal(raw, &n); err != nil {
			return Exposure{}, fmt.Errorf("%q", err.Error())
		}
		e = FromNetCheck(fmt.Sprintf("cluster-%d", number), n)
	default:
		return Exposure{}, fmt.Errorf("its kind is %.40q (want Status or NetCheck)", head.Kind)
	}
	return e, e.Check()
}
