package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/reprocess"
	"github.com/ratebatch/ratebatch/jobs/reset"
	"github.com/ratebatch/ratebatch/jobs/scopes/keystone"
	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/jobs/web/cloudkitty"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// kittyOptions are serve's for CloudKitty's API.
type kittyOptions struct {
	on       bool
	listen   string
	noAuth   bool
	keystone bool
	cloud    string
	password string
	authURI  string
}

func (o *kittyOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.on, "cloudkitty-api", false, "also answer CloudKitty's HTTP API, for Horizon and the cloudkitty client (docs/api.md)")
	f.StringVar(&o.listen, "cloudkitty-listen", "127.0.0.1:8889", "address of CloudKitty's API")
	f.BoolVar(&o.noAuth, "no-auth", false, "let everybody on this machine use CloudKitty's API as an administrator; loopback only")
	f.BoolVar(&o.keystone, "keystone", false, "validate tokens of CloudKitty's API with Keystone; without it those of --tokens count")
	f.StringVar(&o.cloud, "os-cloud", "", "with --keystone: cloud of clouds.yaml [OS_CLOUD]; without one the OS_* variables count")
	f.StringVar(&o.password, "os-password-file", "", "with --keystone: file with the password of the Keystone user, instead of OS_PASSWORD")
	f.StringVar(&o.authURI, "keystone-uri", "", "Keystone's public address, which answers without a token name; empty: OS_AUTH_URL")
}

func (o *kittyOptions) check(tokens bool) error {
	if !o.on {
		if o.noAuth || o.keystone {
			return &ratebatch.ConfigError{Err: errors.New("--no-auth and --keystone are for CloudKitty's API"), Hint: "add --cloudkitty-api"}
		}
		return nil
	}
	switch {
	case o.noAuth && !isLoopback(o.listen):
		return &ratebatch.ConfigError{Err: fmt.Errorf("--no-auth with --cloudkitty-listen %s: everybody who reaches it could reset scopes", o.listen), Hint: "listen on 127.0.0.1, or use --keystone or --tokens"}
	case o.noAuth && (o.keystone || tokens):
		return &ratebatch.ConfigError{Err: errors.New("--no-auth beside --keystone or --tokens"), Hint: "choose one"}
	case !o.noAuth && !o.keystone && !tokens:
		return &ratebatch.ConfigError{Err: errors.New("CloudKitty's API without authentication"), Hint: "add --keystone or --tokens FILE; on loopback also --no-auth"}
	}
	return nil
}

// kittyServer makes the server of CloudKitty's API.
func (p *program) kittyServer(o *kittyOptions, server *web.Server, auth web.Auth, rating *rateOptions, options rate.Options) *cloudkitty.Server {
	k := cloudkitty.Options{Web: server, Now: p.now, Log: p.log, Auth: web.Auth{Tokens: auth.Tokens}, NoAuth: o.noAuth, AuthURI: o.authURI}
	if k.AuthURI == "" {
		k.AuthURI = os.Getenv("OS_AUTH_URL")
	}
	if o.keystone {
		validator := &keystone.Validator{Fetcher: &keystone.Fetcher{Cloud: o.cloud, PasswordFile: o.password}, Now: p.now}
		k.Keystone = func(ctx context.Context, token string) (web.Identity, error) {
			return identityOf(ctx, validator, token)
		}
	}
	settled := func(ctx context.Context, s *store.Store) (rate.Options, error) {
		now := options
		now.Now = p.now()
		return rating.settle(ctx, s, now)
	}
	k.Reset = func(ctx context.Context, s *store.Store, scopes []string, to time.Time, author string) error {
		x, err := settled(ctx, s)
		if err != nil {
			return err
		}
		job := &reset.Job{Store: s, Log: p.log, Options: reset.Options{Scopes: scopes, All: len(scopes) == 0, To: to, Period: x.Period, Reason: "reset through CloudKitty's API", Author: author, Now: x.Now}}
		// A rating run that goes on would commit by the prices that it began with.
		return p.underLease(ctx, s, "reset", "rate", jobOptions{}, func(ctx context.Context, run *jobs.Run) (map[string]string, error) {
			plan, err := job.Plan(ctx)
			if err != nil {
				return nil, err
			}
			result, err := job.Run(ctx, plan, run.ID)
			return map[string]string{"periods": fmt.Sprint(result.Periods)}, err
		})
	}
	k.Reprocess = func(ctx context.Context, s *store.Store, scopes []string, from, to time.Time, reason, author string) error {
		x, err := settled(ctx, s)
		if err != nil {
			return err
		}
		job := p.reprocessJob(s, x)
		if job.Tables, err = usageTables(ctx, s); err != nil {
			return err
		}
		_, err = job.Add(ctx, reprocess.Request{Scopes: scopes, All: len(scopes) == 0, From: from, To: to, Reason: reason, Author: author})
		return err
	}
	return cloudkitty.New(k)
}

// identityOf asks Keystone whom a token is of: an admin sees everything, others
// their token's project, and a token without a project nothing.
func identityOf(ctx context.Context, v *keystone.Validator, token string) (web.Identity, error) {
	x, err := v.Validate(ctx, token)
	switch {
	case errors.Is(err, keystone.ErrInvalid):
		return web.Identity{}, cloudkitty.ErrToken
	case err != nil:
		return web.Identity{}, err
	case x.Admin:
		return web.Identity{Kind: "token", Name: x.User}, nil
	case x.Project == "":
		return web.Identity{}, cloudkitty.ErrToken
	}
	return web.Identity{Kind: "token", Name: x.User, Project: x.Project}, nil
}
