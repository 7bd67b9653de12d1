package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ratebatch/ratebatch/dashboard"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// serveOptions say where serve listens and whom it answers.
type serveOptions struct {
	listen       string
	tokens       string
	proxies      []string
	proxyHeader  string
	proxyProject string
	certificate  string
	key          string
	rating       rateOptions
	rate         float64
	burst        int
	queryTimeout time.Duration
	kitty        kittyOptions
}

func newServeCmd(p *program) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Show usage, costs and the rating's state in a browser, and answer the JSON API",
		Long: `Serve answers the web application and its JSON API (docs/api.md) until it is
stopped. It writes nothing to ClickHouse; only CloudKitty's API can reset, enable,
disable and reprocess scopes. When ClickHouse is away it says so and
goes on as soon as it is back.

It listens on loopback by default, where no authentication is needed. Any other
address needs a file of tokens (make them with 'ratebatch serve token'), or a
reverse proxy whose address and header are named. A token can be made for one
project; it sees that project only.

` + exitCodesHelp,
		Example: `  ratebatch serve
  ratebatch serve --listen 0.0.0.0:8443 --tokens tokens.txt --tls-certificate cert.pem --tls-key key.pem
  ratebatch serve --cloudkitty-api --no-auth
  ratebatch serve --listen 10.0.0.7:8080 --trusted-proxy 10.0.0.2 --proxy-header X-Remote-User`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.serve(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address to listen on")
	f.StringVar(&o.tokens, "tokens", "", "file of tokens, a line each: NAME sha256:HASH [project=ID]; read again when it changes")
	f.StringSliceVar(&o.proxies, "trusted-proxy", nil, "address or network of a reverse proxy whose header is believed; may be repeated")
	f.StringVar(&o.proxyHeader, "proxy-header", defaultProxyHeader, "header in which the trusted proxy names the user")
	f.StringVar(&o.proxyProject, "proxy-project-header", "", "header in which the trusted proxy names the only project the user sees, or * for all; empty: users see all")
	f.StringVar(&o.certificate, "tls-certificate", "", "PEM file with the certificate to speak TLS with")
	f.StringVar(&o.key, "tls-key", "", "PEM file with its key")
	f.Float64Var(&o.rate, "rate-limit", web.DefaultLimits.Rate, "requests a second that each client may send")
	f.IntVar(&o.burst, "rate-burst", web.DefaultLimits.Burst, "requests that each client may send at once")
	f.DurationVar(&o.queryTimeout, "query-timeout", web.DefaultLimits.Timeout, "give up on an answer after this time")
	o.kitty.addFlags(f)
	o.rating.addPeriodFlags(cmd)
	cmd.AddCommand(p.serveTokenCmd())
	return cmd
}

func (p *program) serveTokenCmd() *cobra.Command {
	var name, project string
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token, and the line of the tokens file that admits it",
		Long: `Token prints a new token once, and the line to add to the file that serve reads
with --tokens. The file holds only a hash. With --project the token sees that
project only.

` + exitCodesHelp,
		Example: `  ratebatch serve token --name grafana
  ratebatch serve token --name web-shop --project 8f2a0c`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			token, line, err := web.NewToken(name, project)
			if err != nil {
				return err
			}
			return p.print(map[string]string{"token": token, "line": line}, func() {
				fmt.Fprintf(p.stdout, "token (shown once): %s\nline for the file:  %s\n", token, line)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what logs call its owner")
	cmd.Flags().StringVar(&project, "project", "", "the only project it sees; empty: all")
	return cmd
}

const defaultProxyHeader = "X-Remote-User"

// auth reads who may ask, and refuses an address that everybody reaches with
// nobody asked who they are.
func (o serveOptions) auth(now func() time.Time) (web.Auth, error) {
	var auth web.Auth
	var errs []error
	if o.tokens != "" {
		tokens, err := web.OpenTokens(o.tokens, now)
		auth.Tokens = tokens
		errs = append(errs, err)
	}
	// A header that nobody reads must not look like a restriction.
	if len(o.proxies) == 0 && (o.proxyProject != "" || o.proxyHeader != defaultProxyHeader) {
		errs = append(errs, &ratebatch.ConfigError{Err: errors.New("--proxy-header and --proxy-project-header without --trusted-proxy"), Hint: "add --trusted-proxy with the proxy's address"})
	}
	if len(o.proxies) > 0 {
		auth.Proxy = &web.Proxy{Header: o.proxyHeader, ProjectHeader: o.proxyProject}
		for _, text := range o.proxies {
			network, err := parseNetwork(text)
			switch {
			case err != nil:
				errs = append(errs, &ratebatch.ConfigError{Err: fmt.Errorf("--trusted-proxy %q", text), Hint: "write an address or a network, such as 10.0.0.2 or 10.0.0.0/24"})
			case network.Bits() == 0:
				errs = append(errs, &ratebatch.ConfigError{Err: fmt.Errorf("--trusted-proxy %s is every address: everybody could say who they are", text), Hint: "name the proxy's address or network"})
			}
			auth.Proxy.From = append(auth.Proxy.From, network)
		}
		if o.proxyHeader == "" {
			errs = append(errs, &ratebatch.ConfigError{Err: errors.New("--trusted-proxy without --proxy-header")})
		}
	}
	if (o.certificate == "") != (o.key == "") {
		errs = append(errs, &ratebatch.ConfigError{Err: errors.New("--tls-certificate and --tls-key belong together")})
	}
	errs = append(errs, o.kitty.check(o.tokens != ""))
	if !auth.Required() && !isLoopback(o.listen) {
		errs = append(errs, &ratebatch.ConfigError{Err: fmt.Errorf("--listen %s without authentication: everybody who reaches it would see everybody's costs", o.listen),
			Hint: "add --tokens FILE or --trusted-proxy, or listen on 127.0.0.1"})
	}
	return auth, errors.Join(errs...)
}

func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// isLoopback says whether only this machine reaches an address to listen on.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && web.IsLoopbackHost(host)
}

// listenOn opens an address, with TLS if there is a certificate.
func (o serveOptions) listenOn(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("listen on %s: %w", address, err), Hint: "choose another address with --listen"}
	}
	if o.certificate == "" {
		return l, nil
	}
	pair, err := tls.LoadX509KeyPair(o.certificate, o.key)
	if err != nil {
		return nil, errors.Join(&ratebatch.ConfigError{Err: fmt.Errorf("certificate %s: %w", o.certificate, err)}, l.Close())
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}), nil
}

func (p *program) serve(ctx context.Context, o serveOptions) error {
	auth, err := o.auth(p.now)
	if err != nil {
		return err
	}
	options, err := o.rating.options(p.now())
	if err != nil {
		return err
	}
	connection := &connection{program: p}
	defer connection.close()
	// A data folder that is not there is a mistake; a server that is away, or takes
	// its time, is not.
	first, cancel := ctx, context.CancelFunc(func() {})
	if p.engine.URL != "" {
		first, cancel = context.WithTimeout(ctx, 5*time.Second)
	}
	_, err = connection.open(first)
	cancel()
	if err != nil {
		if p.engine.URL == "" || ratebatch.ExitCode(err) == ratebatch.ExitConfig {
			return err
		}
		p.log.WarnContext(ctx, "ClickHouse cannot be reached yet", "error", err.Error())
	}
	limits := web.DefaultLimits
	limits.Rate, limits.Burst, limits.Timeout = o.rate, o.burst, o.queryTimeout
	_, built := dashboard.App()
	server := p.webServer(connection.open, auth, limits, o.certificate != "", &o.rating, options)
	l, err := o.listenOn(ctx, o.listen)
	if err != nil {
		return err
	}
	scheme := "http"
	if o.certificate != "" {
		scheme = "https"
	}
	p.log.InfoContext(ctx, "serving", "address", scheme+"://"+l.Addr().String(), "dashboard", built, "authentication", auth.Required())
	group, ctx := errgroup.WithContext(ctx)
	if o.kitty.on {
		kl, err := o.listenOn(ctx, o.kitty.listen)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		p.log.InfoContext(ctx, "serving CloudKitty's API", "address", scheme+"://"+kl.Addr().String(), "api", "cloudkitty", "no_auth", o.kitty.noAuth, "keystone", o.kitty.keystone)
		kitty := server.Limit(p.kittyServer(&o.kitty, server, auth, &o.rating, options))
		group.Go(func() error { return web.Serve(ctx, kl, kitty, p.log) })
	}
	group.Go(func() error { return web.Serve(ctx, l, server.Handler(), p.log) })
	group.Go(func() error { server.Warm(ctx, 15*time.Second); return nil })
	return group.Wait()
}

// webServer is the server of the API with what only cmd knows: the jobs behind
// status and explain.
func (p *program) webServer(open func(context.Context) (*store.Store, error), auth web.Auth, limits web.Limits, tls bool, rating *rateOptions, options rate.Options) *web.Server {
	app, _ := dashboard.App()
	return web.New(web.Options{
		Open: open, Now: p.now, Log: p.log, Version: version, App: app, Auth: auth, Limits: limits, TLS: tls,
		Status: func(ctx context.Context, s *store.Store) (any, error) {
			now := options
			now.Now = p.now()
			now, err := rating.settle(ctx, s, now)
			if err != nil {
				return nil, err
			}
			x, err := readStatus(ctx, p, s, now)
			if err != nil {
				return nil, err
			}
			x.Outdated, err = readOutdated(ctx, s)
			return x, err
		},
		Explain: func(ctx context.Context, s *store.Store, l web.LineRef) (any, error) {
			x, err := explainLine(ctx, s, l.ID.String(), explainOptions{scope: l.Scope, begin: l.Begin.Format(time.RFC3339), project: l.Project})
			if errors.Is(err, errNoLine) {
				return nil, web.ErrNoLine
			}
			return x, err
		},
	})
}

// connection is the store of a long-lived server. It is opened again when the
// embedded engine is gone; a pool to a server mends itself.
type connection struct {
	*program
	mu      sync.Mutex
	engine  *engine.Engine
	store   *store.Store
	opening chan struct{} // closed when the attempt that runs has ended; nil: none runs
	giveUp  func()        // gives that attempt up
	next    time.Time     // no attempt before
	failed  error
}

const (
	// retryAfter is how long an attempt to open is not repeated: many requests at
	// once must not become many attempts.
	retryAfter = 2 * time.Second
	// openWithin bounds an attempt to reach a server. One that idles takes half a minute to
	// wake up; one that accepts connections and never answers would hold it for ever.
	openWithin = time.Minute
)

// open gives the store, or waits for the attempt to open it as long as ctx
// allows. The engine outlives the request that opened it, so the attempt goes on
// when the request has given up.
func (c *connection) open(ctx context.Context) (*store.Store, error) {
	s, attempt, err := c.attempt(ctx)
	if err != nil || attempt == nil {
		return s, err
	}
	select {
	case <-attempt:
	case <-ctx.Done():
		return nil, &ratebatch.TryAgainError{Err: errors.New("ClickHouse has not answered yet")}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.engine != nil:
		return c.store, nil
	case c.failed != nil:
		return nil, c.failed
	}
	return nil, &ratebatch.TryAgainError{Err: errors.New("ClickHouse is gone again")}
}

// attempt gives the store if it is open, else the attempt to open it, which it
// starts unless one runs.
func (c *connection) attempt(ctx context.Context) (*store.Store, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine != nil {
		select {
		case <-c.engine.Lost():
			c.log.WarnContext(ctx, "the embedded engine is gone, starting it again")
			_ = c.engine.Close() // it is gone
			c.engine, c.store = nil, nil
		default:
			return c.store, nil, nil
		}
	}
	if c.opening != nil {
		return nil, c.opening, nil
	}
	if c.failed != nil && c.now().Before(c.next) {
		return nil, nil, c.failed
	}
	if c.program.engine.URL == "" && !c.program.engine.Create {
		if _, err := os.Stat(c.program.engine.DataDir); errors.Is(err, fs.ErrNotExist) {
			return nil, nil, &ratebatch.ConfigError{Err: fmt.Errorf("there is no data folder %s", c.program.engine.DataDir), Hint: "name yours with --data, or make it with 'ratebatch migrate'"}
		}
	}
	done := make(chan struct{})
	ctx, c.giveUp = context.WithoutCancel(ctx), func() {}
	if c.program.engine.URL != "" { // the embedded engine ends with the context that started it
		ctx, c.giveUp = context.WithTimeout(ctx, openWithin)
	}
	c.opening = done
	giveUp := c.giveUp
	go func() {
		defer close(done)
		defer giveUp()
		e, err := engine.Open(ctx, c.program.engine)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.opening = nil
		if c.engine, c.failed = e, err; err != nil {
			c.engine, c.next = nil, c.now().Add(retryAfter)
			return
		}
		c.store = store.New(e.Conn(), e.Database())
	}()
	return nil, done, nil
}

// close waits for an attempt that runs, so that no engine is left behind.
func (c *connection) close() {
	c.mu.Lock()
	attempt, giveUp := c.opening, c.giveUp
	c.mu.Unlock()
	if attempt != nil {
		giveUp()
		<-attempt
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine != nil {
		if err := c.engine.Close(); err != nil {
			c.log.Warn("closing the engine", "error", err.Error())
		}
	}
}
