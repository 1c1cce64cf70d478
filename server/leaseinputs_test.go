package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/store/memory"
)

// joined enqueues a workflow of a tenant with n parts and a join, all in a queue of their own.
func (s *site) joined(token, queue, tenant string, n int) {
	s.t.Helper()
	tasks, names := []object{}, []string{}
	for i := range n {
		names = append(names, fmt.Sprint("part", i))
		tasks = append(tasks, object{"name": names[i], "kind": "k", "queue": queue, "tenant": tenant})
	}
	tasks = append(tasks, object{"name": "join", "kind": "k", "queue": queue, "tenant": tenant, "after": names})
	s.as(token, "POST", "/api/v1/workflows", object{"tasks": tasks}).want(s.t, 201, nil)
}

// leaseAs leases one task with a token.
func (s *site) leaseAs(token, queue string) server.LeasedTask {
	s.t.Helper()
	var got server.LeasedTasks
	eventually(s.t, func() bool {
		s.as(token, "POST", "/api/v1/lease", object{"queues": []string{queue}, "wait": "5s"}).want(s.t, 200, &got)
		return len(got.Tasks) == 1
	})
	return got.Tasks[0]
}

func TestAWorkerOverHTTPJoinsAWorkflowOnEveryEngine(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			k := startKeeping(t, open(t))
			producer := k.tokenFor(access.Token{Name: "p", Role: access.Producer})
			worker := k.tokenFor(access.Token{Name: "w", Role: access.Worker})
			k.joined(producer, "q", "acme", 3)
			large := `["` + strings.Repeat("other words ", 60<<10) + `"]`
			for range 3 {
				part := k.leaseAs(worker, "q")
				if part.Workflow == "" || !strings.HasPrefix(part.Name, "part") {
					t.Fatalf("%+v", part)
				}
				if part.Name == "part1" {
					k.as(worker, "POST", "/api/v1/lease/complete/large", object{"lease_id": part.LeaseID,
						"upload": k.uploaded(worker, "/lease/uploads", large, 300<<10)}).want(t, 200, nil)
					continue
				}
				k.as(worker, "POST", "/api/v1/lease/complete", object{"lease_id": part.LeaseID,
					"output": object{"of": part.Name}}).want(t, 200, nil)
			}
			join := k.leaseAs(worker, "q")
			var got server.LeasedInputs
			k.as(worker, "GET", "/api/v1/lease/inputs", nil, "Lease-Id", join.LeaseID).want(t, 200, &got)
			if join.Name != "join" || len(got.Inputs) != 3 || got.Next != "" {
				t.Fatalf("%+v, %+v", join, got)
			}
			for i, in := range got.Inputs {
				path := "/api/v1/lease/inputs/" + in.ID
				want := fmt.Sprintf(`{"of":"part%d"}`, i)
				if in.Name != fmt.Sprint("part", i) || in.State != "completed" || in.Kind != "k" ||
					i != 1 && (string(in.Output) != want || in.Large != nil) ||
					i == 1 && (in.Output != nil || in.Large == nil || in.Large.SHA256 != sumOf(large)) {
					t.Errorf("%+v", in)
				}
				if i == 1 {
					want = large
				}
				a := k.as(worker, "GET", path, nil, "Lease-Id", join.LeaseID).want(t, 200, nil)
				b := k.as(worker, "GET", path, nil, "Lease-Id", join.LeaseID, "Range", "bytes=2-5").want(t, 206, nil)
				if a.body != want || b.body != want[2:6] {
					t.Errorf("%s: %d bytes, %s", in.Name, len(a.body), b.body)
				}
			}
			var rest server.LeasedInputs
			k.as(worker, "GET", "/api/v1/lease/inputs?after="+got.Inputs[1].ID, nil, "Lease-Id", join.LeaseID).want(t, 200,
				&rest)
			if len(rest.Inputs) != 1 || rest.Inputs[0].Name != "part2" {
				t.Errorf("%+v", rest)
			}
			k.as(worker, "POST", "/api/v1/lease/complete", object{"lease_id": join.LeaseID}).want(t, 200, nil)
			for _, path := range []string{"", "/" + got.Inputs[0].ID} {
				k.as(worker, "GET", "/api/v1/lease/inputs"+path, nil, "Lease-Id", join.LeaseID).problem(t, 409, "lease_lost")
			}
		})
	}
}

func TestInputsComeInPages(t *testing.T) {
	s := start(t)
	worker := s.tokenFor(access.Token{Name: "w", Role: access.Worker})
	const parts = 20
	s.joined(s.token, "q", "", parts)
	output := strings.Repeat("x", tusk.MaxOutputBytes-2)
	for range parts {
		s.as(worker, "POST", "/api/v1/lease/complete",
			object{"lease_id": s.leaseAs(worker, "q").LeaseID, "output": output}).want(t, 200, nil)
	}
	join := s.leaseAs(worker, "q")
	n, after := 0, ""
	for {
		var page server.LeasedInputs
		a := s.as(worker, "GET", "/api/v1/lease/inputs"+after, nil, "Lease-Id", join.LeaseID).want(t, 200, &page)
		if n += len(page.Inputs); len(a.body) > 9<<20 {
			t.Errorf("%d bytes", len(a.body))
		}
		if page.Next == "" {
			break
		}
		after = "?after=" + page.Next
	}
	if n != parts || after == "" {
		t.Errorf("%d inputs, the last page is %q", n, after)
	}
}

func TestALeaseReadsOnlyItsOwnInputs(t *testing.T) {
	s := start(t)
	worker := s.tokenFor(access.Token{Name: "w", Role: access.Worker})
	acme, bolt := server.LeasedTask{}, server.LeasedTask{}
	var secret string
	for tenant, join := range map[string]*server.LeasedTask{"acme": &acme, "bolt": &bolt} {
		s.joined(s.token, tenant, tenant, 1)
		part := s.leaseAs(worker, tenant)
		if tenant == "bolt" {
			secret = part.ID
		}
		s.as(worker, "POST", "/api/v1/lease/complete",
			object{"lease_id": part.LeaseID, "output": "of " + tenant}).want(t, 200, nil)
		*join = s.leaseAs(worker, tenant)
	}
	read := func(token, path, lease string) answer {
		return s.as(token, "GET", "/api/v1/lease/inputs"+path, nil, "Lease-Id", lease)
	}
	if a := read(worker, "", acme.LeaseID).want(t, 200, nil); !strings.Contains(a.body, "of acme") ||
		strings.Contains(a.body, "of bolt") {
		t.Error(a.body)
	}
	read(worker, "/"+secret, acme.LeaseID).problem(t, 404, "not_found")
	read(worker, "/"+bolt.ID, bolt.LeaseID).problem(t, 404, "not_found")
	read(worker, "?after="+secret, acme.LeaseID).problem(t, 422, "no_input")
	forged := bolt.ID + "." + strings.SplitN(acme.LeaseID, ".", 2)[1]
	others := []string{s.tokenFor(access.Token{Name: "queue", Role: access.Worker, Queues: []string{"acme"}}),
		s.tokenFor(access.Token{Name: "tenant", Role: access.Worker, Tenants: []string{"acme"}}),
		s.tokenFor(access.Token{Name: "producer", Role: access.Producer})}
	for _, path := range []string{"", "/" + secret} {
		read(worker, path, forged).problem(t, 409, "lease_lost")
		for _, token := range others {
			read(token, path, bolt.LeaseID).problem(t, 403, "forbidden")
		}
		read("", path, bolt.LeaseID).problem(t, 401, "unauthenticated")
	}
	read(worker, "/"+secret, bolt.LeaseID).want(t, 200, nil)
}

func TestAWebhookHasTheInputsOfItsTask(t *testing.T) {
	s := startOn(t, newClient(t, memory.New()), allowLoopback)
	var secret atomic.Value
	joins := make(chan push.Data, 1)
	output := `"` + strings.Repeat("x", 200<<10) + `"`
	c := listen(t, func() string { return secret.Load().(string) },
		func(w http.ResponseWriter, _ *http.Request, m push.Message) {
			if m.Data.Name == "join" {
				joins <- m.Data
			} else if len(m.Data.Inputs) > 0 {
				t.Errorf("%+v", m.Data)
			}
			fmt.Fprint(w, output)
		})
	secret.Store(s.register("hooks", c.URL, nil))
	s.joined(s.token, "hooks", "acme", 2)
	d := <-joins
	if len(d.Inputs) != 2 || d.Inputs[0].Name != "part0" || string(d.Inputs[1].Output) != output || d.Workflow == "" ||
		d.NextInputs != "" || d.Inputs[0].State != "completed" {
		t.Errorf("%d inputs", len(d.Inputs))
	}
	// The endpoint asks for what does not fit.
	s.joined(s.token, "hooks", "acme", 5)
	d = <-joins
	if len(d.Inputs) != 2 || d.NextInputs != d.Inputs[1].ID {
		t.Fatalf("%d inputs, %s", len(d.Inputs), d.NextInputs)
	}
}
