package cloudkitty

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// scope is a scope as CloudKitty has it. state is the old name of
// last_processed_timestamp, which the client still prints.
type scope struct {
	ID        string `json:"scope_id"`
	Key       string `json:"scope_key"`
	Fetcher   string `json:"fetcher"`
	Collector string `json:"collector"`
	Processed string `json:"last_processed_timestamp"`
	State     string `json:"state"`
	Active    bool   `json:"active"`
	Toggled   string `json:"scope_activation_toggle_date"`
}

// collector is where our usage comes from, whatever a client calls it.
const collector = "ratebatch"

func (q *request) allScopes(ctx context.Context) ([]scope, error) {
	ids, err := q.store.Projects(ctx)
	if err != nil {
		return nil, err
	}
	states, err := q.store.ScopeStates(ctx)
	if err != nil {
		return nil, err
	}
	rated, err := q.store.ScopeStatuses(ctx)
	if err != nil {
		return nil, err
	}
	month, _, err := web.Month(ctx, q.store, q.now)
	if err != nil {
		return nil, err
	}
	until := map[string]time.Time{}
	for _, x := range rated {
		if x.RatedUntil.After(until[x.Scope]) {
			until[x.Scope] = x.RatedUntil
		}
	}
	for id := range states {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var out []scope
	for _, id := range ids {
		x := scope{ID: id, Key: scopeKey, Fetcher: "usage", Collector: collector, Active: true, Toggled: iso(month.From)}
		if state, ok := states[id]; ok {
			x.Active, x.Toggled = state.Active, iso(state.ChangedAt)
			if state.Fetcher != "" {
				x.Fetcher = state.Fetcher
			}
		}
		at := until[id]
		if at.IsZero() {
			at = month.From // nothing is rated yet: it begins there
		}
		x.Processed, x.State = iso(at), iso(at)
		out = append(out, x)
	}
	return out, nil
}

func (s *Server) scopes(ctx context.Context, q *request) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	if err := q.known([]string{"offset", "limit"}, "scope_id", "scope_key", "fetcher", "collector", "active"); err != nil {
		return answer{}, err
	}
	limit, offset, err := q.page()
	if err != nil {
		return answer{}, err
	}
	all, err := q.allScopes(ctx)
	if err != nil {
		return answer{}, err
	}
	active := q.list("active")
	for _, text := range active {
		if text != "0" && text != "1" {
			return answer{}, bad("active: use 0 or 1")
		}
	}
	in := func(name, value string) bool {
		list := q.list(name)
		return len(list) == 0 || slices.Contains(list, value)
	}
	all = slices.DeleteFunc(all, func(x scope) bool {
		on := "0"
		if x.Active {
			on = "1"
		}
		// fetcher and collector name where CloudKitty got things from; ours are
		// others, so a filter on them would only hide what there is.
		return !in("scope_id", x.ID) || !in("scope_key", x.Key) || len(active) > 0 && !slices.Contains(active, on)
	})
	all = all[min(offset, len(all)):min(offset+limit, len(all))]
	if len(all) == 0 {
		return answer{}, missing("No scopes found for provided filters.")
	}
	return ok(map[string]any{"results": all})
}

// texts is a list that may come as one text with commas.
type texts []string

// UnmarshalJSON reads both forms.
func (t *texts) UnmarshalJSON(data []byte) error {
	var list []string
	var one string
	if json.Unmarshal(data, &one) == nil {
		list = strings.Split(one, ",")
	} else if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, x := range list {
		if x = strings.TrimSpace(x); x != "" {
			*t = append(*t, x)
		}
	}
	return nil
}

// flag is a boolean that may come as 0 or 1, or as text.
type flag bool

// UnmarshalJSON reads all forms; "false" is false.
func (f *flag) UnmarshalJSON(data []byte) error {
	switch strings.ToLower(strings.Trim(string(data), `"`)) {
	case "true", "1":
		*f = true
	case "false", "0", "null", "":
		*f = false
	default:
		return bad("no boolean")
	}
	return nil
}

// scopeKey is the one key by which scopes are told apart here, under the name
// that CloudKitty's clients know.
const scopeKey = "project_id"

func (s *Server) reset(ctx context.Context, q *request) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	var b struct {
		All       flag   `json:"all_scopes"`
		Scopes    texts  `json:"scope_id"`
		Processed string `json:"last_processed_timestamp"`
		State     string `json:"state"`
		Key       texts  `json:"scope_key"`
		Fetcher   texts  `json:"fetcher"`
		Collector texts  `json:"collector"`
	}
	if err := q.body(&b, "all_scopes", "scope_id", "last_processed_timestamp", "state", "scope_key", "fetcher", "collector"); err != nil {
		return answer{}, err
	}
	if b.Processed == "" {
		b.Processed = b.State
	}
	if bool(b.All) == (len(b.Scopes) > 0) {
		return answer{}, bad("Either all_scopes or a scope_id should be specified.")
	}
	if b.Processed == "" {
		return answer{}, bad("last_processed_timestamp is missing")
	}
	at, err := parseTime("last_processed_timestamp", b.Processed)
	if err != nil {
		return answer{}, err
	}
	// What narrows a request that forgets bills must narrow it, or be refused.
	if b.All && len(b.Fetcher)+len(b.Collector) > 0 {
		return answer{}, bad("fetcher and collector do not tell scopes apart here: name the scopes by scope_id")
	}
	if len(b.Key) > 0 && !slices.Contains(b.Key, scopeKey) {
		return answer{}, missing("No scopes found for provided filters.")
	}
	if err := q.knownScopes(ctx, b.Scopes); err != nil {
		return answer{}, err
	}
	if err := s.Reset(ctx, q.store, b.Scopes, at, q.author()); err != nil {
		return answer{}, err
	}
	return answer{http.StatusAccepted, map[string]any{}}, nil
}

func (q *request) author() string { return "cloudkitty API: " + q.id.Name }

func (q *request) knownScopes(ctx context.Context, names []string) error {
	all, err := q.allScopes(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(x scope) bool { return x.ID == name }) {
			return missing("No scopes found for provided filters: %.128s", name)
		}
	}
	return nil
}

func (q *request) oneScope(ctx context.Context, id string) (answer, error) {
	all, err := q.allScopes(ctx)
	if err != nil {
		return answer{}, err
	}
	for _, x := range all {
		if x.ID == id {
			return ok(x)
		}
	}
	return answer{}, missing("No scopes found for provided filters.")
}

// createScope makes a scope known. Where its rating begins is the first_period
// setting's business, for all scopes alike, so the time only has to be one.
func (s *Server) createScope(ctx context.Context, q *request) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	var b struct {
		ID        string `json:"scope_id"`
		Processed string `json:"last_processed_timestamp"`
		Fetcher   string `json:"fetcher"`
		Active    *flag  `json:"active"`
	}
	if err := q.body(&b, "scope_id", "last_processed_timestamp", "scope_key", "fetcher", "collector", "active"); err != nil {
		return answer{}, err
	}
	if strings.TrimSpace(b.ID) == "" || b.Processed == "" {
		return answer{}, bad("scope_id and last_processed_timestamp are required")
	}
	if _, err := parseTime("last_processed_timestamp", b.Processed); err != nil {
		return answer{}, err
	}
	if q.knownScopes(ctx, []string{b.ID}) == nil {
		return answer{}, missing("Cannot create a scope with an already existing scope_id: %.128s.", b.ID)
	}
	if b.Fetcher == "" {
		b.Fetcher = "cloudkitty"
	}
	x := store.ScopeState{Scope: b.ID, Active: b.Active == nil || bool(*b.Active), Fetcher: b.Fetcher, Reason: "created through CloudKitty's API"}
	if err := q.store.SetScope(ctx, x, q.author()); err != nil {
		return answer{}, err
	}
	return q.oneScope(ctx, b.ID)
}

func (s *Server) patchScope(ctx context.Context, q *request) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	var b struct {
		ID     string `json:"scope_id"`
		Active *flag  `json:"active"`
	}
	if err := q.body(&b, "scope_id", "scope_key", "fetcher", "collector", "active"); err != nil {
		return answer{}, err
	}
	if b.ID == "" {
		return answer{}, bad("scope_id is required")
	}
	if err := q.knownScopes(ctx, []string{b.ID}); err != nil {
		return answer{}, err
	}
	states, err := q.store.ScopeStates(ctx)
	if err != nil {
		return answer{}, err
	}
	x, known := states[b.ID]
	if !known {
		x = store.ScopeState{Scope: b.ID, Active: true, Fetcher: "usage"}
	}
	if b.Active != nil && bool(*b.Active) != x.Active {
		x.Active, x.Reason = bool(*b.Active), "through CloudKitty's API"
		if err := q.store.SetScope(ctx, x, q.author()); err != nil {
			return answer{}, err
		}
	}
	return q.oneScope(ctx, b.ID)
}

func (s *Server) reprocess(ctx context.Context, q *request) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	var b struct {
		Scopes texts  `json:"scope_ids"`
		Start  string `json:"start_reprocess_time"`
		End    string `json:"end_reprocess_time"`
		Reason string `json:"reason"`
	}
	if err := q.body(&b, "scope_ids", "start_reprocess_time", "end_reprocess_time", "reason"); err != nil {
		return answer{}, err
	}
	if len(b.Scopes) == 0 || b.Start == "" || b.End == "" || strings.TrimSpace(b.Reason) == "" {
		return answer{}, bad("scope_ids, start_reprocess_time, end_reprocess_time and reason are required")
	}
	from, err := parseTime("start_reprocess_time", b.Start)
	if err != nil {
		return answer{}, err
	}
	to, err := parseTime("end_reprocess_time", b.End)
	if err != nil {
		return answer{}, err
	}
	if slices.Contains(b.Scopes, "ALL") {
		if len(b.Scopes) > 1 {
			return answer{}, bad("scope_ids: ALL stands alone")
		}
		b.Scopes = nil
	}
	if err := s.Reprocess(ctx, q.store, b.Scopes, from, to, b.Reason, q.author()); err != nil {
		return answer{}, err
	}
	return answer{http.StatusAccepted, map[string]any{}}, nil
}

func (s *Server) reprocesses(ctx context.Context, q *request) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	if err := q.known([]string{"offset", "limit", "order"}, "scope_ids"); err != nil {
		return answer{}, err
	}
	limit, offset, err := q.page()
	if err != nil {
		return answer{}, err
	}
	order := strings.ToLower(q.get("order"))
	if order != "" && order != "asc" && order != "desc" {
		return answer{}, bad("order: use asc or desc")
	}
	list, err := jobs.Schedules(ctx, q.store) // oldest first
	if err != nil {
		return answer{}, err
	}
	if order != "asc" {
		slices.Reverse(list)
	}
	wanted := q.list("scope_ids")
	out := []any{}
	for _, x := range list {
		scopes := x.Scopes
		if len(scopes) == 0 {
			scopes = []string{"ALL"}
		}
		for _, name := range scopes {
			if len(wanted) > 0 && name != "ALL" && !slices.Contains(wanted, name) {
				continue
			}
			current := ""
			if x.StartedAt.Unix() > 0 {
				current = naive(x.DoneUntil)
			}
			out = append(out, map[string]any{"scope_id": name, "reason": x.Reason, "start_reprocess_time": naive(x.Begin), "end_reprocess_time": naive(x.End), "current_reprocess_time": current})
		}
	}
	return ok(map[string]any{"results": out[min(offset, len(out)):min(offset+limit, len(out))]})
}
