package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
)

// distinct fills values so that each text and number of a document is another one. A peer is called peer.
type distinct int

func (n *distinct) fill(v reflect.Value, field string) {
	if t, ok := v.Addr().Interface().(*time.Time); ok {
		*n++
		*t = time.Date(2026, 5, 4, 12, 0, int(*n), 0, time.UTC)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			n.fill(v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		n.fill(v.Index(0), field)
	case reflect.Map:
		key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		n.fill(key, "")
		n.fill(element, "")
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, element)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		n.fill(v.Elem(), field)
	case reflect.String:
		if v.SetString("peer"); field != "Name" && field != "Peer" {
			*n++
			v.SetString(fmt.Sprintf("text-%d", *n))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		*n++
		v.SetFloat(float64(*n) + 0.5)
	case reflect.Int, reflect.Int64:
		*n++
		v.SetInt(int64(*n))
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		*n++
		v.SetUint(uint64(*n))
	default:
		panic("a document has a " + v.Kind().String())
	}
}

// leaves are the texts and numbers of JSON documents, and the names of their maps.
func leaves(v any) (all []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			all = append(append(all, k), leaves(e)...)
		}
	case []any:
		for _, e := range v {
			all = append(all, leaves(e)...)
		}
	default:
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// Commands print all of what the screen is drawn from: whatever a gateway says, whatever its type gets.
func TestCommandsPrintAllThatTheScreenHas(t *testing.T) {
	program, dir := programAndDir(t)
	server, err := admin.Listen(admin.ServerOptions{Socket: filepath.Join(dir, "s"), Backend: &scripted{dir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for _, c := range []struct {
		asks, command string
		document      any
	}{
		{"status", "status", &api.Status{}}, {"checks", "check --last", &api.CheckReport{}}, {"check", "check peer", &api.CheckReport{}}, {"history", "history peer", &api.History{}},
		{"services", "services", &api.ClusterServices{}}, {"log", "log", &api.Log{}}, {"ping", "ping peer --count 1", &api.PingReply{}},
	} {
		t.Run(c.command, func(t *testing.T) {
			var n distinct = 1000
			n.fill(reflect.ValueOf(c.document).Elem(), "")
			if r, ok := c.document.(*api.PingReply); ok {
				r.Error, r.Seq, r.Layer = "", 1, layerOverlay // it arrived, and was asked for
			}
			text, err := json.Marshal(c.document)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, c.asks+".json"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			run := exec.CommandContext(t.Context(), program, append(strings.Fields(c.command), "-o", "json")...)
			run.Env = []string{"POSTERN_SOCKET=" + filepath.Join(dir, "s"), "GORACE=atexit_sleep_ms=0"}
			printed, err := run.Output()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			var got []string
			for d := json.NewDecoder(bytes.NewReader(printed)); d.More(); {
				var v any
				if err := d.Decode(&v); err != nil {
					t.Fatalf("%v in\n%s", err, printed)
				}
				got = append(got, leaves(v)...)
			}
			var want any
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			for _, leaf := range leaves(want) {
				if !slices.Contains(got, leaf) {
					t.Errorf("%q of %s is not printed", leaf, text)
				}
			}
		})
	}
}
