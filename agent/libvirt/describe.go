package libvirt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxXML is what libvirt itself allows in a string (REMOTE_STRING_MAX).
	maxXML   = 4 << 20
	maxDepth = 64
	// maxTokens is some hundred times what a large domain has.
	maxTokens = 500_000

	novaNamespace = "http://openstack.org/xmlns/libvirt/nova/"
)

// description is what the XML says and the statistics do not.
type description struct {
	nova Nova
	nics map[string]nicXML // by target device
}

type nicXML struct{ interfaceID, mac string }

// describe reads a domain's XML as a stream: nothing is expanded, and nesting,
// size and number of elements have bounds. A document type is refused, since
// libvirt never writes one and entities are what XML bombs are made of. Nova's
// metadata is taken from any version of its namespace; the prefix is free.
func describe(text string) (description, error) {
	d := description{nics: map[string]nicXML{}}
	if len(text) > maxXML {
		return d, fmt.Errorf("the domain XML has %d bytes; at most %d are read", len(text), maxXML)
	}
	dec := xml.NewDecoder(strings.NewReader(text))
	var path []string
	var nic nicXML
	var tap string
	started := false
	inNova, seenNova := 0, false // inNova is the path's length at nova:instance
	for n := 0; ; n++ {
		if n > maxTokens {
			return d, fmt.Errorf("the domain XML has more than %d parts", maxTokens)
		}
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			if len(path) > 0 || !started {
				return d, errors.New("the domain XML is cut short")
			}
			return d, nil
		}
		if err != nil {
			return d, fmt.Errorf("the domain XML does not parse: %w", err)
		}
		switch t := tok.(type) {
		case xml.Directive:
			return d, errors.New("the domain XML has a document type declaration, which libvirt never writes")
		case xml.StartElement:
			if len(path) == maxDepth {
				return d, fmt.Errorf("the domain XML is nested deeper than %d elements", maxDepth)
			}
			if len(path) == 0 && (started || t.Name.Local != "domain") {
				return d, errors.New("the domain XML is something else than one domain")
			}
			started = true
			path = append(path, t.Name.Local)
			switch at := strings.Join(path[min(1, len(path)):], "/"); {
			case inNova > 0:
				if strings.HasPrefix(t.Name.Space, novaNamespace) {
					d.nova.start(path[inNova:], t.Attr)
				}
			case at == "metadata/instance" && strings.HasPrefix(t.Name.Space, novaNamespace) && !seenNova:
				inNova, seenNova = len(path), true
			case at == "devices/interface":
				nic, tap = nicXML{}, ""
			case at == "devices/interface/mac":
				nic.mac = attr(t.Attr, "address")
			case at == "devices/interface/target":
				tap = attr(t.Attr, "dev")
			case at == "devices/interface/virtualport/parameters":
				nic.interfaceID = attr(t.Attr, "interfaceid")
			}
		case xml.CharData:
			if inNova > 0 && len(path) == inNova+1 && path[inNova] == "name" {
				d.nova.InstanceName += string(t)
			}
		case xml.EndElement:
			if len(path) == 3 && path[1] == "devices" && path[2] == "interface" && tap != "" {
				d.nics[tap] = nic
			}
			if len(path) == inNova {
				inNova = 0
			}
			path = path[:len(path)-1]
		}
	}
}

// start takes an element of nova:instance by its path below it.
func (n *Nova) start(path []string, attrs []xml.Attr) {
	switch strings.Join(path, "/") {
	case "flavor":
		n.FlavorName = attr(attrs, "name")
	case "owner/project":
		n.ProjectID = attr(attrs, "uuid")
	case "owner/user":
		n.UserID = attr(attrs, "uuid")
	case "root":
		if attr(attrs, "type") == "image" {
			n.ImageID = attr(attrs, "uuid")
		}
	}
}

func attr(attrs []xml.Attr, name string) string {
	for _, a := range attrs {
		if a.Name.Local == name && a.Name.Space == "" {
			return a.Value
		}
	}
	return ""
}
