package keystone

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// Subject is whom a token is of.
type Subject struct {
	User    string // name
	Project string // id; empty without a project scope
	Admin   bool   // has the role admin
}

// ErrInvalid says that Keystone does not know a token, or that it has expired.
var ErrInvalid = errors.New("the token is not valid")

// Validator asks a Keystone whose tokens are valid. Answers are kept for a
// minute, never longer than the token lives.
type Validator struct {
	Fetcher *Fetcher // the service user that asks
	Now     func() time.Time

	mu       sync.Mutex
	identity *gophercloud.ServiceClient
	kept     map[[sha256.Size]byte]keptSubject
}

type keptSubject struct {
	subject Subject
	until   time.Time
}

const (
	keepFor = time.Minute
	maxKept = 10_000
)

// Validate says whom a token is of; ErrInvalid if it is none.
func (v *Validator) Validate(ctx context.Context, token string) (Subject, error) {
	key := sha256.Sum256([]byte(token))
	now := v.Now()
	v.mu.Lock()
	kept, ok := v.kept[key]
	v.mu.Unlock()
	if ok && now.Before(kept.until) {
		return kept.subject, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	client, err := v.client(ctx)
	if err != nil {
		return Subject{}, explain(err)
	}
	result := tokens.Get(ctx, client, token)
	if gophercloud.ResponseCodeIs(result.Err, http.StatusNotFound) {
		return Subject{}, ErrInvalid
	}
	if result.Err != nil {
		return Subject{}, explain(result.Err)
	}
	x, err := subjectOf(result)
	if err != nil {
		return Subject{}, explain(err)
	}
	until := now.Add(keepFor)
	if t, err := result.ExtractToken(); err == nil && t.ExpiresAt.Before(until) {
		until = t.ExpiresAt
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept == nil || len(v.kept) >= maxKept {
		v.kept = map[[sha256.Size]byte]keptSubject{}
	}
	v.kept[key] = keptSubject{x, until}
	return x, nil
}

func subjectOf(result tokens.GetResult) (Subject, error) {
	var x Subject
	user, err := result.ExtractUser()
	if err != nil {
		return x, err
	}
	if user != nil {
		x.User = user.Name
	}
	project, err := result.ExtractProject()
	if err != nil {
		return x, err
	}
	if project != nil {
		x.Project = project.ID
	}
	roles, err := result.ExtractRoles()
	x.Admin = slices.ContainsFunc(roles, func(r tokens.Role) bool { return r.Name == "admin" })
	return x, err
}

// client logs in once; gophercloud logs in again when its token has expired.
func (v *Validator) client(ctx context.Context) (*gophercloud.ServiceClient, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.identity != nil {
		return v.identity, nil
	}
	auth, endpoint, tlsConfig, err := v.Fetcher.credentials()
	if err != nil {
		return nil, err
	}
	auth.AllowReauth = true
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}
	provider, err := config.NewProviderClient(ctx, auth, config.WithHTTPClient(http.Client{Transport: transport, Timeout: 15 * time.Second}))
	if err != nil {
		return nil, err
	}
	v.identity, err = openstack.NewIdentityV3(provider, endpoint)
	return v.identity, err
}
