package netstack

import (
	"errors"
	"io"
	"sync"
)

const (
	// copySize is the buffer of WriteTo and ReadFrom: a few full TCP segments, so that a
	// system call on the other side moves as much as TCP does at once.
	copySize = 256 << 10
	// smallCopySize is the buffer while little arrives: about one TLS record.
	smallCopySize = 16 << 10
)

// copyBuffers are shared by all copying connections.
var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// copyBuffer is the buffer for one direction of copying. It is small while little arrives, so that
// a thousand idle connections do not hold a thousand large buffers, and large after the first read
// that fills the small one.
type copyBuffer struct {
	small []byte
	large *[copySize]byte // nil while not in use
	size  int             // of large, that is used
}

func newCopyBuffer(size int) *copyBuffer {
	return &copyBuffer{small: make([]byte, smallCopySize), size: size}
}

// current returns the buffer for the next read.
func (b *copyBuffer) current() []byte {
	if b.large != nil {
		return b.large[:b.size]
	}
	return b.small
}

// adapt chooses the next buffer by the size of the last read.
func (b *copyBuffer) adapt(n int) {
	switch {
	case b.large == nil && n == len(b.small):
		b.large = copyBuffers.Get().(*[copySize]byte)
	case b.large != nil && n < len(b.small):
		b.release()
	}
}

func (b *copyBuffer) release() {
	if b.large != nil {
		copyBuffers.Put(b.large)
		b.large = nil
	}
}

// WriteTo implements io.WriterTo: it copies arriving data to w until the peer's half-close or an
// error. It makes io.Copy move whole windows instead of 32 KB at a time.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	return copyAll(w, c, newCopyBuffer(copySize))
}

// ReadFrom implements io.ReaderFrom: it sends r's data until its end or an error. It does not close
// for writing.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	return copyAll(c, r, newCopyBuffer(copySize/c.piece*c.piece))
}

// copyAll copies r to w until r's end.
func copyAll(w io.Writer, r io.Reader, b *copyBuffer) (int64, error) {
	defer b.release()
	var total int64
	for {
		buf := b.current()
		n, err := r.Read(buf)
		if n > 0 {
			written, werr := w.Write(buf[:n])
			total += int64(written)
			if werr == nil && written < n {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return total, werr
			}
			b.adapt(n)
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}
