package libvirt

import (
	"fmt"
	"strings"
	"testing"
)

const novaXML = `<domain><metadata><%[1]sinstance xmlns%[2]s="%[3]s"><%[1]sname>%[4]s</%[1]sname><%[1]sflavor name="m1.small"/>
<%[1]sowner><%[1]suser uuid="u1">demo</%[1]suser><%[1]sproject uuid="p1">%[4]s</%[1]sproject></%[1]sowner><%[1]sroot type="image" uuid="i1"/></%[1]sinstance></metadata></domain>`

func TestNovaMetadataOfAnyVersion(t *testing.T) {
	want := Nova{ProjectID: "p1", UserID: "u1", FlavorName: "m1.small", InstanceName: "server", ImageID: "i1"}
	ns := "http://openstack.org/xmlns/libvirt/nova/"
	for name, tt := range map[string]struct {
		xml  string
		want Nova
	}{
		"1.0":                  {fmt.Sprintf(novaXML, "nova:", ":nova", ns+"1.0", "server"), want},
		"1.1":                  {fmt.Sprintf(novaXML, "nova:", ":nova", ns+"1.1", "server"), want},
		"an unknown 9.9":       {fmt.Sprintf(novaXML, "nova:", ":nova", ns+"9.9", "server"), want},
		"another prefix":       {fmt.Sprintf(novaXML, "n2:", ":n2", ns+"1.1", "server"), want},
		"no prefix":            {fmt.Sprintf(novaXML, "", "", ns+"1.1", "server"), want},
		"another's namespace":  {fmt.Sprintf(novaXML, "x:", ":x", "http://example.org/instance", "server"), Nova{}},
		"empty metadata":       {"<domain><metadata/></domain>", Nova{}},
		"no metadata":          {"<domain><name>x</name></domain>", Nova{}},
		"no owner":             {`<domain><metadata><n:instance xmlns:n="` + ns + `1.0"><n:name>server</n:name></n:instance></metadata></domain>`, Nova{InstanceName: "server"}},
		"booted from a volume": {`<domain><metadata><n:instance xmlns:n="` + ns + `1.1"><n:root type="volume" uuid="v1"/></n:instance></metadata></domain>`, Nova{}},
		"a second one is not":  {strings.Replace(fmt.Sprintf(novaXML, "nova:", ":nova", ns+"1.1", "server"), "</metadata>", `<n:instance xmlns:n="`+ns+`1.1"><n:name>other</n:name></n:instance></metadata>`, 1), want},
		"a name outside of it": {`<domain><metadata><n:name xmlns:n="` + ns + `1.1">x</n:name></metadata></domain>`, Nova{}},
		"non-ASCII":            {fmt.Sprintf(novaXML, "nova:", ":nova", ns+"1.1", "Zürich-日本-🙂"), Nova{"p1", "u1", "m1.small", "Zürich-日本-🙂", "i1"}},
		"10,000 characters":    {fmt.Sprintf(novaXML, "nova:", ":nova", ns+"1.1", strings.Repeat("ü", 10000)), Nova{"p1", "u1", "m1.small", strings.Repeat("ü", 10000), "i1"}},
		"escaped":              {fmt.Sprintf(novaXML, "nova:", ":nova", ns+"1.1", "a &amp; b &lt;c&gt;<![CDATA[ & d]]>"), Nova{"p1", "u1", "m1.small", "a & b <c> & d", "i1"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := describe(tt.xml)
			if err != nil || d.nova != tt.want {
				t.Errorf("%+v, %v; want %+v", d.nova, err, tt.want)
			}
		})
	}
}

func TestInterfacesOfTheXML(t *testing.T) {
	d, err := describe(`<domain><devices>
	<interface type='bridge'><mac address='m1'/><virtualport type='openvswitch'><parameters interfaceid='i1' profileid='x'/></virtualport><target dev='tap1'/></interface>
	<interface type='ethernet'><mac address='m2'/><target dev='tap2'/></interface>
	<interface type='hostdev'><mac address='m3'/></interface>
	<hostdev><target dev='tap9'/></hostdev></devices></domain>`)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.nics) != 2 || d.nics["tap1"] != (nicXML{"i1", "m1"}) || d.nics["tap2"] != (nicXML{"", "m2"}) {
		t.Errorf("interfaces: %+v", d.nics)
	}
}

func TestXMLThatIsRefused(t *testing.T) {
	bomb := `<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><domain><name>&b;</name></domain>`
	for name, text := range map[string]string{
		"an XML bomb":                bomb,
		"an external entity":         `<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><domain>&x;</domain>`,
		"an undeclared entity":       "<domain>&x;</domain>",
		"deep nesting":               "<domain>" + strings.Repeat("<a>", 100000),
		"too large":                  "<domain><name>" + strings.Repeat("x", maxXML) + "</name></domain>",
		"too many elements":          "<domain>" + strings.Repeat("<a/>", maxTokens) + "</domain>",
		"cut short":                  "<domain><devices>",
		"empty":                      "",
		"not XML":                    "Domain not found",
		"not UTF-8":                  "<domain><name>\xff\xfe</name></domain>",
		"an end without a start":     "</domain>",
		"another end than the start": "<domain></nomad>",
	} {
		t.Run(name, func(t *testing.T) {
			if d, err := describe(text); err == nil {
				t.Errorf("it was accepted: %+v", d)
			} else if len(err.Error()) > 300 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add(fmt.Sprintf(novaXML, "nova:", ":nova", novaNamespace+"1.1", "server"))
	f.Add("<domain><devices><interface><target dev='t'/></interface></devices></domain>")
	f.Fuzz(func(t *testing.T, s string) { describe(s) })
}
