package report

import (
	"reflect"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
)

// Every field of a report counts for equality: a new one must not be forgotten.
func TestEveryFieldMakesAReportAnother(t *testing.T) {
	ignored := map[string]bool{".Version": true, ".At": true, ".Hears.Handshake": true, ".Hears.Probe": true, ".Hears.Report": true,
		".Verdicts[0].RTT": true, ".Verdicts[0].Age": true}
	plain := func() *Report { return &Report{Verdicts: []Verdict{{}}} }
	changed := plain()
	fields := 0
	eachLeaf(reflect.ValueOf(changed).Elem(), "", func(path string, field reflect.Value) {
		fields++
		field.Set(other(t, field.Type()))
		if got := plain().Same(*changed); got != ignored[path] {
			t.Errorf("with another %s: Same is %v, want %v", path, got, ignored[path])
		}
		field.SetZero()
	})
	if fields < 14 {
		t.Errorf("%d fields were tried, want all", fields)
	}
	if !plain().Same(*changed) {
		t.Error("a report is not equal to itself")
	}
}

// eachLeaf calls f with each field that is not a struct of ours.
func eachLeaf(v reflect.Value, path string, f func(path string, field reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[catalogue.NAT]() || v.Kind() == reflect.Struct && v.Type().PkgPath() == reflect.TypeFor[Report]().PkgPath():
		for i := range v.NumField() {
			at := path
			if !v.Type().Field(i).Anonymous {
				at += "." + v.Type().Field(i).Name
			}
			eachLeaf(v.Field(i), at, f)
		}
	case v.Type() == reflect.TypeFor[[]Verdict]():
		eachLeaf(v.Index(0), path+"[0]", f)
	default:
		f(path, v)
	}
}

// other returns a value that is not zero.
func other(t *testing.T, of reflect.Type) reflect.Value {
	v := reflect.New(of).Elem()
	switch {
	case of == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(noon))
	case of.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(of, 1, 1))
	case of.Kind() == reflect.String:
		v.SetString("x")
	case of.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	case of.Kind() == reflect.Struct: // an address
		addr := v.Addr().Interface().(interface{ UnmarshalText([]byte) error })
		if err := addr.UnmarshalText([]byte("192.0.2.1:7")); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("no value for type %v", of)
	}
	return v
}
