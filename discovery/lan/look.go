package lan

import (
	"slices"
	"time"
)

// look compares the interfaces with the last ones. It opens sockets on new ones, closes those on
// removed ones, and informs the machine.
func (f *Finder) look() {
	list, err := f.o.Interfaces()
	if err != nil {
		f.mu.Lock()
		f.listErr = err.Error()
		f.mu.Unlock()
		f.log.Debug("failed to list interfaces", "error", err)
		return
	}
	wanted := map[connKey]Interface{}
	for _, i := range list {
		for fam := range Family(families) {
			if i.Unfit == "" && i.has(fam) {
				wanted[connKey{i.Index, fam}] = i
			}
		}
	}
	f.closeUnwanted(wanted)
	errs := map[int][]string{}
	for fam := range Family(families) {
		for _, i := range list {
			key := connKey{i.Index, fam}
			if _, want := wanted[key]; !want {
				continue
			}
			if err := f.open(key, i); err != nil {
				errs[i.Index] = append(errs[i.Index], fam.String()+": "+err.Error())
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interfaces, f.errs, f.listErr = slices.Clone(list), errs, ""
	f.m.setLinks(time.Now(), f.links(list))
}

// links returns the interfaces with an open socket, in the machine's form.
func (f *Finder) links(list []Interface) []linkState {
	var out []linkState
	for _, i := range list {
		s := linkState{Interface: i}
		for fam := range Family(families) {
			s.open[fam] = f.conns[connKey{i.Index, fam}] != nil
		}
		if s.open != [families]bool{} {
			out = append(out, s)
		}
	}
	return out
}

// open opens a socket unless there is one. A failure is retried the next time.
func (f *Finder) open(key connKey, i Interface) error {
	if f.conns[key] != nil {
		return nil
	}
	c, err := f.o.Listen(i, key.family)
	if err != nil {
		if f.failed[key] != err.Error() {
			f.failed[key] = err.Error()
			f.log.Warn("cannot run LAN discovery on an interface", "interface", i.Name, "family", key.family.String(), "error", err)
		}
		return err
	}
	delete(f.failed, key)
	o := &openConn{Conn: c, done: make(chan struct{})}
	f.conns[key] = o
	f.readers.Go(func() { f.read(key, o) })
	f.log.Debug("running LAN discovery on an interface", "interface", i.Name, "family", key.family.String())
	return nil
}

// closeUnwanted closes the sockets of removed interfaces, and broken ones.
func (f *Finder) closeUnwanted(wanted map[connKey]Interface) {
	for key, c := range f.conns {
		_, keep := wanted[key]
		select {
		case <-c.done:
			keep = false
		default:
		}
		if !keep {
			_ = c.Close()
			delete(f.conns, key)
		}
	}
}

func (f *Finder) closeAll() { f.closeUnwanted(nil) }
