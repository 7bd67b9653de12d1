package web

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Who may see whose bills behind a proxy: only what that proxy said, once, from
// its own address.
func TestAProxyIsBelievedFromItsAddressOnlyAndOnce(t *testing.T) {
	const all = "" // projects
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("192.168.7.0/24"), netip.MustParsePrefix("fd00::2/128")}
	for name, tt := range map[string]struct {
		from          string
		header        http.Header
		projectHeader string
		want          Identity // zero: refused
	}{
		"its address":                   {"10.0.0.2:4711", http.Header{"X-User": {"ann"}}, "", Identity{"proxy", "ann", all}},
		"its network":                   {"192.168.7.255:4711", http.Header{"X-User": {"ann"}}, "", Identity{"proxy", "ann", all}},
		"its IPv6 address":              {"[fd00::2]:4711", http.Header{"X-User": {"ann"}}, "", Identity{"proxy", "ann", all}},
		"IPv4 as a socket for both has": {"[::ffff:10.0.0.2]:4711", http.Header{"X-User": {"ann"}}, "", Identity{"proxy", "ann", all}},
		"the address beside it":         {from: "10.0.0.3:4711", header: http.Header{"X-User": {"ann"}}},
		"the network beside it":         {from: "192.168.8.0:4711", header: http.Header{"X-User": {"ann"}}},
		"another IPv6 address":          {from: "[fd00::3]:4711", header: http.Header{"X-User": {"ann"}}},
		"this machine":                  {from: "127.0.0.1:4711", header: http.Header{"X-User": {"ann"}}},
		"no address":                    {from: "@", header: http.Header{"X-User": {"ann"}}},
		"an address it only speaks of":  {from: "10.0.0.3:4711", header: http.Header{"X-User": {"ann"}, "X-Forwarded-For": {"10.0.0.2"}, "Forwarded": {"for=10.0.0.2"}, "X-Real-Ip": {"10.0.0.2"}}},
		"no user":                       {from: "10.0.0.2:4711", header: http.Header{}},
		"an empty user":                 {from: "10.0.0.2:4711", header: http.Header{"X-User": {""}}},
		"two users":                     {from: "10.0.0.2:4711", header: http.Header{"X-User": {"ann", "bob"}}},
		"the same user twice":           {from: "10.0.0.2:4711", header: http.Header{"X-User": {"ann", "ann"}}},
		"a user and an empty one":       {from: "10.0.0.2:4711", header: http.Header{"X-User": {"ann", ""}}},

		"no project":                   {from: "10.0.0.2:4711", header: http.Header{"X-User": {"ann"}}, projectHeader: "X-Project"},
		"an empty project":             {from: "10.0.0.2:4711", header: http.Header{"X-User": {"ann"}, "X-Project": {""}}, projectHeader: "X-Project"},
		"a project":                    {"10.0.0.2:4711", http.Header{"X-User": {"ann"}, "X-Project": {"8f2a0c"}}, "X-Project", Identity{"proxy", "ann", "8f2a0c"}},
		"a project without a user":     {from: "10.0.0.2:4711", header: http.Header{"X-Project": {"8f2a0c"}}, projectHeader: "X-Project"},
		"all projects":                 {"10.0.0.2:4711", http.Header{"X-User": {"ann"}, "X-Project": {"*"}}, "X-Project", Identity{"proxy", "ann", all}},
		"all from another address":     {from: "10.0.0.3:4711", header: http.Header{"X-User": {"ann"}, "X-Project": {"*"}}, projectHeader: "X-Project"},
		"two projects":                 {from: "10.0.0.2:4711", header: http.Header{"X-User": {"ann"}, "X-Project": {"8f2a0c", "*"}}, projectHeader: "X-Project"},
		"several in one header":        {"10.0.0.2:4711", http.Header{"X-User": {"ann"}, "X-Project": {"8f2a0c, *"}}, "X-Project", Identity{"proxy", "ann", "8f2a0c, *"}}, // a project that there is not
		"all, in another way":          {"10.0.0.2:4711", http.Header{"X-User": {"ann"}, "X-Project": {"**"}}, "X-Project", Identity{"proxy", "ann", "**"}},
		"a project nobody reads":       {"10.0.0.2:4711", http.Header{"X-User": {"ann"}, "X-Project": {"8f2a0c"}}, "", Identity{"proxy", "ann", all}},
		"a token nobody looks at":      {from: "10.0.0.2:4711", header: http.Header{"Authorization": {"Bearer ann"}}},
		"the proxy's own password":     {"10.0.0.2:4711", http.Header{"X-User": {"ann"}, "Authorization": {"Basic YW5uOng="}}, "", Identity{"proxy", "ann", all}},
		"a name that looks like all":   {"10.0.0.2:4711", http.Header{"X-User": {"*"}, "X-Project": {"8f2a0c"}}, "X-Project", Identity{"proxy", "*", "8f2a0c"}},
		"a header of a name like that": {from: "10.0.0.2:4711", header: http.Header{"X_user": {"ann"}, "X-User-Name": {"ann"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/costs", nil)
			r.RemoteAddr, r.Header = tt.from, tt.header
			auth := Auth{Proxy: &Proxy{From: trusted, Header: "x-user", ProjectHeader: tt.projectHeader}}
			if got, ok := auth.Identify(r); got != tt.want || ok != (tt.want != Identity{}) {
				t.Errorf("%+v %v, want %+v", got, ok, tt.want)
			}
		})
	}
}

// With tokens and a proxy, a token that is sent decides, also when it is wrong.
func TestATokenGoesBeforeTheProxy(t *testing.T) {
	token, line, err := NewToken("shop", "8f2a0c")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := OpenTokens(file, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	auth := Auth{Tokens: tokens, Proxy: &Proxy{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}, Header: "X-User"}}
	for name, tt := range map[string]struct {
		from, header, value string
		want                Identity
	}{
		"a token":                  {"10.0.0.9:1", "Authorization", "Bearer " + token, Identity{"token", "shop", "8f2a0c"}},
		"a token through it":       {"10.0.0.2:1", "Authorization", "Bearer " + token, Identity{"token", "shop", "8f2a0c"}},
		"a wrong token through it": {"10.0.0.2:1", "Authorization", "Bearer x" + token, Identity{}},
		"CloudKitty's header":      {"10.0.0.9:1", "X-Auth-Token", token, Identity{"token", "shop", "8f2a0c"}},
		"no token through it":      {"10.0.0.2:1", "Authorization", "Bearer ", Identity{"proxy", "ann", ""}},
		"no token":                 {"10.0.0.9:1", "Authorization", "Bearer ", Identity{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/costs", nil)
			r.RemoteAddr = tt.from
			r.Header.Set("X-User", "ann")
			r.Header.Set(tt.header, tt.value)
			if got, ok := auth.Identify(r); got != tt.want || ok != (tt.want != Identity{}) {
				t.Errorf("%+v %v, want %+v", got, ok, tt.want)
			}
		})
	}
}
