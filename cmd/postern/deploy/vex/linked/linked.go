// Package linked tells what is linked into a program: the modules that its build information
// lists, and the functions that the linker kept. A module that is listed can have left nothing
// behind but the names of its types.
package linked

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"strings"
)

// Program is what was read of one.
type Program struct {
	// Module is the main module's path, Version its version as the build stamped it.
	Module, Version string
	versions        map[string]string // by module path
	functions       []byte            // names, each ended by a zero byte
}

// Read reads a Go program in ELF, stripped or not.
func Read(path string) (*Program, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read what %s was built of: %w", path, err)
	}
	p := &Program{Module: info.Main.Path, Version: info.Main.Version, versions: map[string]string{}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		p.versions[m.Path] = m.Version
	}
	if p.functions, err = functionTable(path); err != nil {
		return nil, fmt.Errorf("read the functions of %s: %w", path, err)
	}
	return p, nil
}

// functionTable is the section that holds the names of all functions, one after the other;
// unlike the symbols it is in stripped programs too.
func functionTable(path string) ([]byte, error) {
	program, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	table := program.Section(".gopclntab")
	if table == nil {
		return nil, errors.Join(errors.New("it has no table of functions"), program.Close())
	}
	data, err := table.Data()
	return data, errors.Join(err, program.Close())
}

// Has returns the version of a module in the program; empty without it.
func (p *Program) Has(module string) string { return p.versions[module] }

// Function is the first function whose name begins with prefix; empty if there is none.
func (p *Program) Function(prefix string) string {
	names := p.functions
	for {
		i := bytes.Index(names, []byte(prefix))
		if i < 0 {
			return ""
		}
		// A name begins after the end of the one before; within one the prefix is an argument's.
		if i == 0 || names[i-1] == 0 {
			name, _, _ := bytes.Cut(names[i:], []byte{0})
			return strings.ToValidUTF8(string(name), "?")
		}
		names = names[i+1:]
	}
}
