package faketest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

const (
	webPort         = 5000
	descriptionPath = "/rootDesc.xml"
	controlPath     = "/ctl/IPConn"
)

// searched answers a search.
func (r *Router) searched(b []byte, to string) (answer []byte, from netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests["SSDP"]++
	r.search = append(r.search, to)
	device := fmt.Sprintf("urn:schemas-upnp-org:device:InternetGatewayDevice:%d", r.o.IGD)
	if !r.o.UPnP || !strings.Contains(string(b), device) {
		return nil, from
	}
	location := r.lies.Location
	if location == "" {
		location = fmt.Sprintf("http://%v%s", netip.AddrPortFrom(r.o.Addr, webPort), descriptionPath)
	}
	if from = r.lies.From; !from.IsValid() {
		from = netip.AddrPortFrom(r.o.Addr, 1900)
	}
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nCACHE-CONTROL: max-age=120\r\nEXT:\r\nST: %s\r\nLOCATION: %s\r\n\r\n", device, location), from
}

// serve is the router's web server.
func (r *Router) serve(w http.ResponseWriter, q *http.Request) {
	r.count("HTTP")
	r.mu.Lock()
	lies, o := r.lies, r.o
	r.mu.Unlock()
	switch {
	case lies.HTTP != nil:
		lies.HTTP.ServeHTTP(w, q)
	case q.URL.Path == descriptionPath:
		text := lies.Description
		if text == "" {
			text = Description(o.IGD, "", controlPath)
		}
		_, _ = io.WriteString(w, text)
	case q.URL.Path == controlPath:
		r.control(w, q)
	default:
		http.NotFound(w, q)
	}
}

// Description returns a device description with one service that maps ports.
func Description(version int, base, control string) string {
	if base != "" {
		base = "<URLBase>" + base + "</URLBase>"
	}
	return fmt.Sprintf(`<?xml version="1.0"?>
<root xmlns="urn:schemas-upnp-org:device-1-0">%s<device>
<deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:%d</deviceType>
<serviceList><service><serviceType>urn:schemas-upnp-org:service:Layer3Forwarding:1</serviceType><controlURL>/l3</controlURL></service></serviceList>
<deviceList><device><deviceList><device>
<serviceList><service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:%d</serviceType><controlURL>%s</controlURL></service></serviceList>
</device></deviceList></device></deviceList></device></root>`, base, version, version, control)
}

// action is the action of a SOAP request.
type action struct {
	Name   xml.Name
	Values map[string]string
}

func readAction(body io.Reader) (action, error) {
	d := xml.NewDecoder(body)
	a := action{Values: make(map[string]string)}
	var depth int
	var name string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return a, fmt.Errorf("faketest: read SOAP: %w", err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			depth++
			if name = x.Name.Local; depth == 3 { // Envelope, Body, the action
				a.Name = x.Name
			}
		case xml.CharData:
			a.Values[name] = strings.TrimSpace(a.Values[name] + string(x))
		case xml.EndElement:
			depth--
			name = ""
		}
	}
}

func (r *Router) control(w http.ResponseWriter, q *http.Request) {
	a, err := readAction(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := fmt.Sprintf("urn:schemas-upnp-org:service:WANIPConnection:%d", r.o.IGD)
	if err != nil || a.Name.Space != kind || q.Header.Get("SOAPAction") != fmt.Sprintf("%q", kind+"#"+a.Name.Local) {
		fault(w, 401)
		return
	}
	r.requests[a.Name.Local]++
	r.expire()
	port, _ := strconv.ParseUint(a.Values["NewExternalPort"], 10, 16)
	entry, there := r.table[uint16(port)]
	switch a.Name.Local {
	case "GetExternalIPAddress":
		reply(w, a.Name.Local, kind, map[string]string{"NewExternalIPAddress": r.o.External.String()})
	case "GetSpecificPortMappingEntry":
		if !there {
			fault(w, 714)
			return
		}
		reply(w, a.Name.Local, kind, map[string]string{
			"NewInternalClient": entry.Client.String(), "NewInternalPort": strconv.Itoa(int(entry.Internal)), "NewEnabled": "1",
		})
	case "DeletePortMapping":
		if !there {
			fault(w, 714)
			return
		}
		delete(r.table, uint16(port))
		reply(w, a.Name.Local, kind, nil)
	case "AddPortMapping":
		r.add(w, kind, a.Values, uint16(port))
	default:
		fault(w, 401)
	}
}

// add adds a mapping. mu is held.
func (r *Router) add(w http.ResponseWriter, kind string, v map[string]string, port uint16) {
	if len(r.lies.SOAPError) > 0 {
		fault(w, r.lies.SOAPError[0])
		r.lies.SOAPError = r.lies.SOAPError[1:]
		return
	}
	client, err := netip.ParseAddr(v["NewInternalClient"])
	internal, err2 := strconv.ParseUint(v["NewInternalPort"], 10, 16)
	lease, err3 := strconv.Atoi(v["NewLeaseDuration"])
	switch was, there := r.table[port]; {
	case err != nil || err2 != nil || err3 != nil || v["NewProtocol"] != "UDP" || v["NewEnabled"] != "1" || v["NewRemoteHost"] != "":
		fault(w, 402)
		return
	case client != r.o.Seen:
		fault(w, 606)
		return
	case there && was.Client != client:
		fault(w, 718)
		return
	}
	m := Mapping{Client: client, Internal: uint16(internal), External: port, By: "UPnP"}
	if lease > 0 {
		m.Expires = time.Now().Add(time.Duration(lease) * time.Second)
	}
	r.table[port] = m
	reply(w, "AddPortMapping", kind, nil)
}

const soapHead = `<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>`

func reply(w http.ResponseWriter, action, kind string, values map[string]string) {
	fmt.Fprintf(w, `%s<u:%sResponse xmlns:u="%s">`, soapHead, action, kind)
	for k, v := range values {
		fmt.Fprintf(w, "<%s>%s</%s>", k, v, k)
	}
	fmt.Fprintf(w, `</u:%sResponse></s:Body></s:Envelope>`, action)
}

func fault(w http.ResponseWriter, code int) {
	w.WriteHeader(http.StatusInternalServerError)
	fmt.Fprintf(w, `%s<s:Fault><faultcode>s:Client</faultcode><faultstring>UPnPError</faultstring><detail>`+
		`<UPnPError xmlns="urn:schemas-upnp-org:control-1-0"><errorCode>%d</errorCode><errorDescription>No</errorDescription></UPnPError>`+
		`</detail></s:Fault></s:Body></s:Envelope>`, soapHead, code)
}
