package portmap

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// serviceKinds returns the services that map ports, the best first.
func serviceKinds() []string {
	return []string{
		"urn:schemas-upnp-org:service:WANIPConnection:2",
		"urn:schemas-upnp-org:service:WANIPConnection:1",
		"urn:schemas-upnp-org:service:WANPPPConnection:1",
	}
}

// maxServices limits how many services of a description are tried.
const maxServices = 4

// description is the relevant part of a device description (UPnP Device Architecture 1.1 §2.3).
type description struct {
	URLBase string     `xml:"URLBase"`
	Device  descDevice `xml:"device"`
}

type descDevice struct {
	Services []descService `xml:"serviceList>service"`
	Devices  []descDevice  `xml:"deviceList>device"`
}

type descService struct {
	Type    string `xml:"serviceType"`
	Control string `xml:"controlURL"`
}

// describe reads the description at a URL that routerURL has accepted.
func (g *igd) describe(ctx context.Context, router netip.Addr, at *url.URL) ([]igdService, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("read its description: %w", err)
	}
	body, status, err := g.exchange(router, req)
	if err != nil {
		return nil, fmt.Errorf("read its description: %w", err)
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("read its description: HTTP status %d", status)
	}
	return parseDescription(body, at, router)
}

// parseDescription returns the services that map ports, the best first.
func parseDescription(body []byte, at *url.URL, router netip.Addr) ([]igdService, error) {
	var d description
	if err := decoder(body).Decode(&d); err != nil {
		return nil, errors.New("its description is no XML that can be read")
	}
	base := at
	if text := strings.TrimSpace(d.URLBase); text != "" {
		var err error
		if base, err = routerURL(nil, text, router); err != nil {
			return nil, fmt.Errorf("URLBase of its description: %w", err)
		}
	}
	var out []igdService
	var refused error
	var walk func(descDevice)
	walk = func(dev descDevice) {
		for _, s := range dev.Services {
			kind := strings.TrimSpace(s.Type)
			if !slices.Contains(serviceKinds(), kind) {
				continue
			}
			control, err := routerURL(base, strings.TrimSpace(s.Control), router)
			if err != nil {
				refused = fmt.Errorf("control URL of its description: %w", err)
				continue
			}
			out = append(out, igdService{kind, control.String()})
		}
		for _, inner := range dev.Devices {
			walk(inner)
		}
	}
	walk(d.Device)
	if len(out) == 0 {
		return nil, refused
	}
	slices.SortStableFunc(out, func(a, b igdService) int {
		return slices.Index(serviceKinds(), a.kind) - slices.Index(serviceKinds(), b.kind)
	})
	return out[:min(len(out), maxServices)], nil
}

// decoder reads XML of any single-byte encoding unconverted: the relevant parts are ASCII.
func decoder(body []byte) *xml.Decoder {
	d := xml.NewDecoder(bytes.NewReader(body))
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	return d
}

// soapArg is an argument of an action, in the order of its definition.
type soapArg struct{ name, value string }

// soapError is a refused action. The device's own words are untrusted and left out.
type soapError struct {
	action string
	code   int
}

func (e *soapError) Error() string {
	why := map[int]string{
		upnpActionNotAllowed: "not authorized (the router's settings forbid it)",
		upnpNoSuchEntry:      "there is no such mapping",
		upnpConflict:         "the port is mapped to another host",
		upnpConflictOther:    "the port is in use by another mechanism",
		upnpPermanentOnly:    "it grants mappings without an end only",
		upnpSamePorts:        "both ports have to be the same",
		402:                  "it calls the arguments invalid",
		501:                  "it failed",
		728:                  "it has no room for more mappings",
	}[e.code]
	if why == "" {
		return fmt.Sprintf("%s: error %d", e.action, e.code)
	}
	return fmt.Sprintf("%s: error %d, %s", e.action, e.code, why)
}

// call calls an action of a service and returns its results.
func (g *igd) call(ctx context.Context, router netip.Addr, s igdService, action string, args []soapArg) (map[string]string, error) {
	// The URL was accepted when it was found. It is checked again, since here it could do harm.
	u, err := routerURL(nil, s.control, router)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(envelope(s.kind, action, args)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	req.Header.Set("Content-Type", `text/xml; charset="utf-8"`)
	req.Header["SOAPAction"] = []string{`"` + s.kind + "#" + action + `"`} // some devices compare the case
	body, status, err := g.exchange(router, req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	values, err := leaves(body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: HTTP status %d and an answer that cannot be read", action, status)
	case status == http.StatusOK:
		return values, nil
	}
	code, err := strconv.Atoi(values["errorCode"])
	if err != nil {
		return nil, fmt.Errorf("%s: HTTP status %d", action, status)
	}
	return nil, &soapError{action, code}
}

// exchange sends a request and reads the answer, within the limits of this package.
func (g *igd) exchange(router netip.Addr, req *http.Request) (body []byte, status int, err error) {
	resp, err := g.client(router).Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which is untrusted text
		}
		return nil, 0, foreign.Err(err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("read the answer: %w", err)
	case len(body) > maxBody:
		return nil, 0, fmt.Errorf("the answer is larger than %d bytes", maxBody)
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, 0, fmt.Errorf("it redirects (HTTP status %d), which is not followed", resp.StatusCode)
	}
	return body, resp.StatusCode, nil
}

// envelope writes a SOAP request (UPnP Device Architecture 1.1 §3.2.1).
func envelope(service, action string, args []soapArg) []byte {
	var b bytes.Buffer
	b.WriteString(xml.Header + `<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"` +
		` s:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body>`)
	fmt.Fprintf(&b, `<u:%s xmlns:u="%s">`, action, service)
	for _, a := range args {
		fmt.Fprintf(&b, "<%s>", a.name)
		_ = xml.EscapeText(&b, []byte(a.value)) // a buffer never fails
		fmt.Fprintf(&b, "</%s>", a.name)
	}
	fmt.Fprintf(&b, `</u:%s></s:Body></s:Envelope>`, action)
	return b.Bytes()
}

// leaves returns the text of every element without children, by its local name; the first one
// counts.
func leaves(body []byte) (map[string]string, error) {
	d := decoder(body)
	out := make(map[string]string)
	var name string // of the element that has had no child yet
	var text []byte
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read XML: %w", err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			name, text = x.Name.Local, nil
		case xml.CharData:
			text = append(text, x...)
		case xml.EndElement:
			if _, there := out[name]; name != "" && name == x.Name.Local && !there {
				out[name] = strings.TrimSpace(string(text))
			}
			name, text = "", nil
		}
	}
}
