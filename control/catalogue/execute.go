package catalogue

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"text/template/parse"
)

// Templates are parsed by text/template's parser and executed here. text/template calls methods by
// name, so the linker would keep every exported method of every type: 16 % more of the program,
// including code with known vulnerabilities that nothing calls. Here two tables, [words] and
// methods, contain what may be called. Variables, ranges and pipelines of several commands are
// missing, since no text needs them.

// execute returns the non-empty lines of a template. An error is a mistake in the template.
func (c *catalogue) execute(t *parse.Tree, v *view) (lines []line, err error) {
	e := execution{catalogue: c, root: v}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", t.Name, p)
		}
	}()
	e.write(t.Root, v)
	e.end()
	return e.lines, nil
}

// line is a line of a template's output.
type line struct {
	mark, text string
	rule       string // that a value added beside the text
}

// marks begin lines of a fix. Only templates contain them: no value begins a line with one.
var marks = []string{"$ ", "> ", "or "}

// execution executes a template and its parts. A mistake panics.
type execution struct {
	*catalogue
	root  any // the value of $
	lines []line
	now   line // the current line
}

// template writes literal text of a template, the only text that can begin a line.
func (e *execution) template(text string) {
	for i, part := range strings.Split(text, "\n") {
		if rest, goesOn := strings.CutPrefix(part, "\t"); i > 0 && goesOn {
			part = " " + rest
		} else if i > 0 {
			e.end()
		}
		for _, m := range marks {
			if rest, has := strings.CutPrefix(part, m); has && e.now == (line{}) {
				e.now.mark, part = m, rest
			}
		}
		e.now.text += part
	}
}

// end ends a line.
func (e *execution) end() {
	if e.now.text = strings.TrimSpace(e.now.text); e.now.text != "" {
		e.lines = append(e.lines, e.now)
	}
	e.now = line{}
}

// write executes a node; dot is the value of the dot.
func (e *execution) write(n parse.Node, dot any) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, each := range n.Nodes {
				e.write(each, dot)
			}
		}
	case *parse.TextNode:
		e.template(string(n.Text))
	case *parse.ActionNode:
		switch v := e.value(n.Pipe, dot).(type) {
		case rule:
			e.now.text, e.now.rule = e.now.text+v.group, v.command
		default:
			e.now.text += fmt.Sprint(v)
		}
	case *parse.IfNode:
		if truth(e.value(n.Pipe, dot)) {
			e.write(n.List, dot)
		} else {
			e.write(n.ElseList, dot)
		}
	case *parse.WithNode:
		if v := e.value(n.Pipe, dot); truth(v) {
			e.write(n.List, v)
		} else {
			e.write(n.ElseList, dot)
		}
	case *parse.TemplateNode:
		t := e.templates[n.Name]
		if t == nil {
			panic(fmt.Sprintf("no part %q", n.Name))
		}
		outer := e.root
		e.root = e.value(n.Pipe, dot)
		e.write(t.Root, e.root)
		e.root = outer
	default:
		panic(fmt.Sprintf("%s cannot be executed", n))
	}
}

// value returns an expression's value. The operands after the first are arguments of a call.
func (e *execution) value(n parse.Node, dot any, args ...any) any {
	switch n := n.(type) {
	case *parse.PipeNode:
		if len(n.Cmds) != 1 || len(n.Decl) > 0 {
			panic(fmt.Sprintf("%s has more than one command", n))
		}
		return e.value(n.Cmds[0], dot)
	case *parse.CommandNode:
		for _, each := range n.Args[1:] {
			args = append(args, e.value(each, dot))
		}
		return e.value(n.Args[0], dot, args...)
	case *parse.IdentifierNode:
		return call(words[n.Ident], args...)
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return member(dot, n.Ident, args...)
	case *parse.VariableNode: // $, the only one, and its members
		return member(e.root, n.Ident[1:], args...)
	case *parse.ChainNode:
		return member(e.value(n.Node, dot), n.Field, args...)
	case *parse.StringNode:
		return n.Text
	case *parse.NumberNode:
		return int(n.Int64)
	}
	panic(fmt.Sprintf("%s cannot be evaluated", n))
}

// parameters maps names to field indexes of a view: a search by name costs more than a sentence.
var parameters = sync.OnceValue(func() map[string][]int {
	out := map[string][]int{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[view]()) {
		out[f.Name] = f.Index
	}
	return out
})

// member returns the method or parameter of a view at a path.
func member(of any, path []string, args ...any) any {
	for i, name := range path {
		v, ok := of.(*view)
		if !ok {
			panic(fmt.Sprintf("%s of a %T", name, of))
		}
		if m := methods[name]; m == nil {
			of = reflect.ValueOf(v).Elem().FieldByIndex(parameters()[name]).Interface()
		} else if i == len(path)-1 {
			of = call(m, append([]any{v}, args...)...)
		} else {
			of = call(m, v)
		}
	}
	return of
}

// call calls a function. Its arguments have the kinds of its parameters.
func call(f any, args ...any) any {
	if f, ok := f.(func(...any) any); ok {
		return f(args...)
	}
	in := make([]reflect.Value, len(args))
	for i, a := range args {
		in[i] = reflect.ValueOf(a)
		if want := reflect.TypeOf(f).In(i); in[i].Kind() == want.Kind() {
			in[i] = in[i].Convert(want)
		}
	}
	return reflect.ValueOf(f).Call(in)[0].Interface()
}

// truth reports whether a value is not the zero value. A list is true if it is not empty.
func truth(v any) bool {
	if v := reflect.ValueOf(v); v.Kind() == reflect.Slice {
		return v.Len() > 0
	}
	return !reflect.ValueOf(v).IsZero()
}

// firstTrue returns the first value that is true, or else the last one; firstFalse likewise.
func firstTrue(v ...any) any { return firstThat(true, v) }

func firstFalse(v ...any) any { return firstThat(false, v) }

func firstThat(is bool, v []any) any {
	for _, each := range v {
		if truth(each) == is {
			return each
		}
	}
	return v[len(v)-1]
}

// compared returns a function that compares two strings or numbers.
func compared(holds func(order int) bool) func(...any) any {
	return func(v ...any) any {
		a, b := reflect.ValueOf(v[0]), reflect.ValueOf(v[1])
		if a.Kind() == reflect.String {
			return holds(strings.Compare(a.String(), b.String()))
		}
		return holds(cmp.Compare(number(a), number(b)))
	}
}

func number(v reflect.Value) float64 {
	if v.CanUint() {
		return float64(v.Uint())
	}
	return float64(v.Int())
}
