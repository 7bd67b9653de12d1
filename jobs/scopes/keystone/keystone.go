// Package keystone lists a cloud's projects with their names and domains.
//
// Credentials come from a cloud of clouds.yaml, else from the OS_* variables,
// and a password also from a file; never from arguments, which every user of
// the machine can read. Errors name neither password nor token.
package keystone

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/domains"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"github.com/ratebatch/ratebatch/jobs/scopes"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// DefaultTimeout is for a whole fetch. It is short, because a rate that fetches
// first waits for it.
const DefaultTimeout = time.Minute

// maxPages ends a list whose pages lead back to one another.
const maxPages = 100_000

// Fetcher lists the projects of one Keystone.
type Fetcher struct {
	Cloud        string        // of clouds.yaml; empty: OS_CLOUD, else the OS_* variables
	PasswordFile string        // holds the password; empty: OS_PASSWORD or clouds.yaml
	Timeout      time.Duration // of the whole fetch; 0: DefaultTimeout
	Getenv       func(string) string
}

// Name is keystone.
func (*Fetcher) Name() string { return "keystone" }

const credentialsHint = "set OS_CLOUD and clouds.yaml, or OS_AUTH_URL, OS_USERNAME, OS_USER_DOMAIN_NAME and OS_PASSWORD (or a password file)"

// Fetch lists every project the user may see, page by page. Projects that act
// as a domain hold no resources and are left out.
func (f *Fetcher) Fetch(ctx context.Context) ([]scopes.Scope, error) {
	timeout := f.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	late := fmt.Errorf("no answer within %s", timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	list, err := f.fetch(ctx)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, late) {
			err = cause
		}
		return nil, explain(err)
	}
	return list, nil
}

func (f *Fetcher) fetch(ctx context.Context) ([]scopes.Scope, error) {
	auth, endpoint, tlsConfig, err := f.credentials()
	if err != nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("keystone credentials: %w", err), Hint: credentialsHint}
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}
	defer transport.CloseIdleConnections()
	provider, err := config.NewProviderClient(ctx, auth, config.WithHTTPClient(http.Client{Transport: transport}))
	if err != nil {
		return nil, err
	}
	provider.MaxBackoffRetries = 3
	identity, err := openstack.NewIdentityV3(provider, endpoint)
	if err != nil {
		return nil, err
	}
	names, err := domainNames(ctx, identity)
	if err != nil {
		return nil, err
	}
	var out []scopes.Scope
	err = eachPage(ctx, projects.List(identity, projects.ListOpts{}), func(page pagination.Page) error {
		list, err := projects.ExtractProjects(page)
		for _, x := range list {
			if x.IsDomain || x.ID == "" {
				continue
			}
			domain, ok := names[x.DomainID]
			if !ok {
				domain = x.DomainID
			}
			out = append(out, scopes.Scope{ID: x.ID, Name: x.Name, Domain: domain})
		}
		return err
	})
	return out, err
}

// domainNames are the names by id. A user who may list projects but not domains
// sees the domains' ids instead.
func domainNames(ctx context.Context, identity *gophercloud.ServiceClient) (map[string]string, error) {
	out := map[string]string{}
	err := eachPage(ctx, domains.List(identity, domains.ListOpts{}), func(page pagination.Page) error {
		list, err := domains.ExtractDomains(page)
		for _, x := range list {
			out[x.ID] = x.Name
		}
		return err
	})
	if gophercloud.ResponseCodeIs(err, http.StatusForbidden) {
		return out, nil
	}
	return out, err
}

func eachPage(ctx context.Context, pager pagination.Pager, use func(pagination.Page) error) error {
	pages := 0
	return pager.EachPage(ctx, func(_ context.Context, page pagination.Page) (bool, error) {
		if pages++; pages > maxPages {
			return false, fmt.Errorf("the list has more than %d pages", maxPages)
		}
		return true, use(page)
	})
}

// credentials are those of clouds.yaml, else of the environment.
func (f *Fetcher) credentials() (gophercloud.AuthOptions, gophercloud.EndpointOpts, *tls.Config, error) {
	var none gophercloud.AuthOptions
	password := ""
	if f.PasswordFile != "" {
		text, err := os.ReadFile(f.PasswordFile)
		if err != nil {
			return none, gophercloud.EndpointOpts{}, nil, err
		}
		password = strings.TrimRight(string(text), "\r\n")
	}
	getenv := f.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	cloud := f.Cloud
	if cloud == "" {
		cloud = getenv("OS_CLOUD")
	}
	if cloud == "" {
		return fromEnvironment(getenv, password)
	}
	options := []clouds.ParseOption{clouds.WithCloudName(cloud)}
	if password != "" {
		options = append(options, clouds.WithPassword(password))
	}
	return clouds.Parse(options...)
}

// fromEnvironment reads the variables that an openrc file sets, those of user
// and project domains included, which gophercloud's own reader leaves out.
func fromEnvironment(getenv func(string) string, password string) (gophercloud.AuthOptions, gophercloud.EndpointOpts, *tls.Config, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if v := getenv(name); v != "" {
				return v
			}
		}
		return ""
	}
	a := gophercloud.AuthOptions{
		IdentityEndpoint:            getenv("OS_AUTH_URL"),
		Username:                    getenv("OS_USERNAME"),
		UserID:                      first("OS_USER_ID", "OS_USERID"),
		Password:                    password,
		TokenID:                     getenv("OS_TOKEN"),
		ApplicationCredentialID:     getenv("OS_APPLICATION_CREDENTIAL_ID"),
		ApplicationCredentialName:   getenv("OS_APPLICATION_CREDENTIAL_NAME"),
		ApplicationCredentialSecret: getenv("OS_APPLICATION_CREDENTIAL_SECRET"),
	}
	e := gophercloud.EndpointOpts{Region: getenv("OS_REGION_NAME"), Availability: availability(getenv("OS_INTERFACE"))}
	if a.Password == "" {
		a.Password = getenv("OS_PASSWORD")
	}
	if a.UserID == "" {
		a.DomainID, a.DomainName = first("OS_USER_DOMAIN_ID", "OS_DOMAIN_ID"), first("OS_USER_DOMAIN_NAME", "OS_DOMAIN_NAME")
		if a.DomainID != "" {
			a.DomainName = ""
		}
	}
	switch {
	case a.ApplicationCredentialID != "" || a.ApplicationCredentialName != "": // it has a scope of its own
	case getenv("OS_SYSTEM_SCOPE") == "all":
		a.Scope = &gophercloud.AuthScope{System: true}
	case first("OS_PROJECT_ID", "OS_TENANT_ID") != "":
		a.Scope = &gophercloud.AuthScope{ProjectID: first("OS_PROJECT_ID", "OS_TENANT_ID")}
	case first("OS_PROJECT_NAME", "OS_TENANT_NAME") != "":
		a.Scope = &gophercloud.AuthScope{ProjectName: first("OS_PROJECT_NAME", "OS_TENANT_NAME"), DomainID: first("OS_PROJECT_DOMAIN_ID", "OS_DOMAIN_ID")}
		if a.Scope.DomainID == "" {
			a.Scope.DomainName = first("OS_PROJECT_DOMAIN_NAME", "OS_DOMAIN_NAME")
		}
	case first("OS_DOMAIN_ID", "OS_DOMAIN_NAME") != "":
		a.Scope = &gophercloud.AuthScope{DomainID: getenv("OS_DOMAIN_ID")}
		if a.Scope.DomainID == "" {
			a.Scope.DomainName = getenv("OS_DOMAIN_NAME")
		}
	}
	switch {
	case a.IdentityEndpoint == "":
		return a, e, nil, errors.New("OS_AUTH_URL is not set")
	case a.Password == "" && a.TokenID == "" && a.ApplicationCredentialSecret == "":
		return a, e, nil, errors.New("OS_PASSWORD is not set")
	case a.TokenID == "" && a.ApplicationCredentialSecret == "" && a.Username == "" && a.UserID == "":
		return a, e, nil, errors.New("OS_USERNAME is not set")
	}
	tlsConfig, err := trust(getenv("OS_CACERT"))
	return a, e, tlsConfig, err
}

func availability(text string) gophercloud.Availability {
	switch strings.TrimSuffix(text, "URL") {
	case "internal":
		return gophercloud.AvailabilityInternal
	case "admin":
		return gophercloud.AvailabilityAdmin
	default:
		return gophercloud.AvailabilityPublic
	}
}

func trust(file string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file == "" {
		return c, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("OS_CACERT: %w", err)
	}
	if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("OS_CACERT: %s holds no certificate", file)
	}
	return c, nil
}

// explain sorts an error by what a person can do about it.
func explain(err error) error {
	var known *ratebatch.ConfigError
	var response gophercloud.ErrUnexpectedResponseCode
	var noEndpoint *gophercloud.ErrEndpointNotFound
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &noEndpoint):
		return &ratebatch.ConfigError{Err: errors.New("keystone: its catalog has no identity service for this region and interface"), Hint: "check OS_REGION_NAME and OS_INTERFACE"}
	case errors.As(err, &response):
		err = fmt.Errorf("keystone: %s %s answered %d: %.200s", response.Method, response.URL, response.Actual, strings.Join(strings.Fields(string(response.Body)), " "))
		switch response.Actual {
		case http.StatusUnauthorized:
			return &ratebatch.ConfigError{Err: err, Hint: "check the user, its domain and its password"}
		case http.StatusForbidden:
			return &ratebatch.ConfigError{Err: err, Hint: "give the user the role reader on the system (OS_SYSTEM_SCOPE=all), or admin"}
		case http.StatusNotFound:
			return &ratebatch.ConfigError{Err: err, Hint: "check OS_AUTH_URL; it looks like https://cloud.example.org:5000/v3"}
		}
	default:
		err = fmt.Errorf("keystone: %w", err)
	}
	return &ratebatch.TryAgainError{Err: err, Hint: "the scopes known so far stay and are rated"}
}
