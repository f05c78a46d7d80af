package history

import "unsafe"

// Size returns how many bytes the history takes.
func (h *History) Size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	size := 0
	for _, s := range h.peers {
		kept := cap(s.points)*int(unsafe.Sizeof(point{})) + s.eventSize()
		size += overhead + kept + kept/(rounding-1)
	}
	return size
}
