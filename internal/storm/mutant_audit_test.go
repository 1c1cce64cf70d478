//go:build unix

package storm

// audited are the bugs that an audit of the PostgreSQL engine found, planted again: each
// takes its repair back. The storm or a history has to find each within five minutes.
var audited = []planted{
	{mutant: mutant{name: "what is open is judged before the lock", edits: []change{{"store/postgres/migrations/00005_finish.sql",
		"  if not exists (select from tusk.lease x where x.token = _token and x.lane = _lane and x.ctid = any(_locked)) then\n",
		"  _open := tusk.open_in(_token, _lane);\n  if not exists (select from tusk.lease x where x.token = _token and x.lane = _lane and x.ctid = any(_locked)) then\n"},
		{"store/postgres/migrations/00005_finish.sql", "  end if;\n  _open := tusk.open_in(_token, _lane);\n", "  end if;\n"}},
		caught: "accepted inside"}, in: "store/postgres", test: "^TestConformance$/race/a_commit", env: "TUSK_TEST_COMMITS=1m"},
	{mutant: mutant{name: "a transaction's end is judged with its lock", edits: []change{{"store/postgres/migrations/00005_finish.sql",
		"  if not tusk.try_finish(_token, _id) then\n    return false;\n  end if;\n  -- A statement of its own: it sees what the lock's last holder committed.\n  if not exists (",
		"  if not tusk.try_finish(_token, _id) or not exists ("}},
		caught: "accepted inside"}, in: "store/postgres", test: "^TestConformance$/race/a_finish", env: "TUSK_TEST_COMMITS=1m"},
}
