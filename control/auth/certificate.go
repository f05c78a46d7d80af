package auth

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// certificateCheck is how often the files of a certificate are checked. Certificates are renewed
// days before they expire.
const certificateCheck = time.Minute

// FileCertificate is a server's certificate in files, which may be renewed while it serves. It is
// safe for concurrent use.
type FileCertificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	read    [2]time.Time // modification times of the two
	looked  time.Time
}

// LoadCertificate reads the files. logger may be nil.
func LoadCertificate(certFile, keyFile string, logger *slog.Logger) (*FileCertificate, error) {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	f := &FileCertificate{certFile: certFile, keyFile: keyFile, log: logger}
	if err := f.load(time.Now()); err != nil {
		return nil, err
	}
	return f, nil
}

// TLS returns a server configuration with the certificate.
func (f *FileCertificate) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: f.get}
}

func (f *FileCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.looked) >= certificateCheck {
		f.looked = now
		if times, err := f.times(); err != nil || times != f.read {
			if err := f.loadLocked(now); err != nil { // the old one stays in use
				f.log.Warn("cannot use the renewed certificate for auth outside the tunnel; keeping the old one", "certFile", f.certFile, "error", err)
			}
		}
	}
	return f.current, nil
}

func (f *FileCertificate) load(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loadLocked(now)
}

func (f *FileCertificate) loadLocked(now time.Time) error {
	times, err := f.times()
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return fmt.Errorf("load the certificate %s: %w", f.certFile, err)
	}
	f.current, f.read, f.looked = &pair, times, now
	return nil
}

func (f *FileCertificate) times() (out [2]time.Time, err error) {
	for i, file := range []string{f.certFile, f.keyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return out, fmt.Errorf("look at the certificate: %w", err)
		}
		out[i] = info.ModTime()
	}
	return out, nil
}

// Listen returns a listener that terminates TLS.
func (f *FileCertificate) Listen(ln net.Listener) net.Listener { return tls.NewListener(ln, f.TLS()) }
