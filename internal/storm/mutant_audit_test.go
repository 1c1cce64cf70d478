//go:build unix

package storm

// audited are the bugs that an audit of the PostgreSQL engine found, planted again: each undoes a fix. The storm or a
// history has to find each of them within five minutes.
var audited = []planted{
	{mutant: mutant{name: "what is open is judged before the lock",
		edits: []change{{"store/postgres/functions/06_parts.sql",
			"    _ids := tusk_fn.group_of(f, g); _held := '{}';\n",
			"    _ids := tusk_fn.group_of(f, g); _held := '{}';\n    _left := tusk_fn.open_in(f.tokens[g], f.lanes[g]);\n"},
			{"store/postgres/functions/06_parts.sql",
				"    end if;\n    _left := tusk_fn.open_in(f.tokens[g], f.lanes[g]);\n", "    end if;\n"}},
		caught: "accepted inside"}, in: "store/postgres", test: "^TestConformance$/race/a_commit",
		env: "TUSK_TEST_COMMITS=1m"},
	{mutant: mutant{name: "a transaction's end is judged with its lock",
		edits: []change{{"store/postgres/functions/06_finish.sql",
			"  if not found or not tusk_fn.try_finish(_token, e.id) then\n    return;\n  end if;\n" +
				"  -- A separate statement, which sees what the lock's last holder committed.\n  if not exists (",
			"  if not found or not tusk_fn.try_finish(_token, e.id) or not exists ("}},
		caught: "accepted inside"}, in: "store/postgres", test: "^TestConformance$/race/a_finish",
		env: "TUSK_TEST_COMMITS=1m"},
	{mutant: mutant{name: "what a living worker does not know of is nobody's", ground: "postgres", edits: []change{
		{"store/postgres/sql/keep.sql", "  where (w.id is null or l.claimed_at < w.since",
			"  where (w.id is null or false and l.claimed_at < w.since"}},
		faults: "F38", caught: "I1:|I19"}, env: envTime + "=30s"},
	{mutant: mutant{name: "what is known of lanes is known for ever", ground: "postgres", edits: []change{
		{"store/postgres/known.go", "	k.lanes.Clear()\n", ""},
		{"store/postgres/known.go", "	if !k.looked.IsZero() && time.Since(k.looked) < lanesEvery {", "	if lanesEvery > 0 {"}},
		faults: "F8", caught: "I1:|I15"}, env: envTime + "=90s"},
	{mutant: mutant{name: "notes wait for a user's transaction", ground: "postgres", edits: []change{
		{"internal/run/attempt.go", "s == nil || a.inTx || !s.fresh", "s == nil || !s.fresh"},
		{"store/postgres/functions/06_notes.sql", "set lock_timeout = '20ms'", "set lock_timeout = '10s'"}},
		faults: "F39", caught: "I17|I18"}, env: envTime + "=60s"},
	{mutant: mutant{name: "a finish waits for a key of a user's transaction", ground: "postgres", edits: []change{
		{"store/postgres/functions/03_lock.sql",
			"  if cardinality(_keys) = 1 then",
			"  perform tusk_fn.lock_keys(_queues, _keys);\n  if cardinality(_keys) = 1 then"},
		{"store/postgres/functions/06_finish.sql", "set lock_timeout = '300ms'", "set lock_timeout = '10s'"}},
		faults: "F39", caught: "I17|I18"}, env: envTime + "=30s"},
	{mutant: mutant{name: "a claim waits for a lane of a user's transaction", ground: "postgres", edits: []change{
		{"store/postgres/functions/04_claim.sql",
			"  return pg_try_advisory_xact_lock_shared(~(_lane # ('tusk.log'::regclass::oid::bigint << 31)))\n    and " +
				"pg_advisory",
			"  return pg_advisory"}},
		faults: "F39", caught: "I17|I18"}, env: envTime + "=30s"},
	{mutant: mutant{name: "infinity is a time", ground: "postgres", edits: []change{
		{"store/postgres/functions/16_sql.sql", "when _run_at not between", "when false and _run_at not between"},
		{"store/postgres/sql/keep.sql", " and w.run_at < 'infinity' order by", " order by"}},
		faults: "F40", caught: "I1:|I21"}, env: envTime + "=30s"},
	{mutant: mutant{name: "tags of two dimensions stop a claim", ground: "postgres", edits: []change{
		{"store/postgres/functions/16_sql.sql", "when array_ndims(_tags) > 1 then", "when false then"},
		{"store/postgres/claimed.go", "				t.Damage = \"its tags cannot be read: \" + err.Error()\n", "				return err\n"}},
		faults: "F40", caught: "I1:"}, env: envTime + "=30s"},
	{mutant: mutant{name: "a kind too long for an index is written back", ground: "postgres", edits: []change{
		{"store/postgres/functions/16_sql.sql", "when _kind ~ _name is not true then", "when false then"},
		{"store/postgres/functions/01_words.sql", "left(l.kind, 64) as kind", "l.kind"},
		{"store/postgres/sql/catalogue.sql", "pg_catalog.left(t.kind, 64) as kind", "t.kind"}},
		faults: "F40", caught: "I1:"}, env: envTime + "=30s"},
	{mutant: mutant{name: "handlers that hold the pool starve the engine", edits: []change{
		{"store/postgres/spare.go",
			"	pool, err := s.spare.open(s.pool)\n	if err != nil {\n		return nil, err\n	}\n	return pool.Acquire(ctx)\n",
			"	return s.pool.Acquire(ctx)\n"}},
		caught: "deadline exceeded|timeout"}, in: "store/postgres", test: "^TestConformance$/crowd"},
	{mutant: mutant{name: "SQL enqueues beside the limits of a queue", ground: "postgres", edits: []change{
		{"store/postgres/functions/16_sql.sql", "nullif(_turns, false)", "null"}},
		faults: "F1", caught: "I9"}, env: envTime + "=20s"},
	{mutant: mutant{name: "a migration locks for its session", edits: []change{
		{"store/postgres/migrate.go", "pg_catalog.pg_advisory_xact_lock($1)", "pg_catalog.pg_advisory_lock($1)"}},
		caught: "advisory locks"}, in: "store/postgres", test: "RunsTwiceBehindAPooler$", env: "TUSK_TEST_HISTORY=10s"},
	{mutant: mutant{name: "maintenance sets a timeout for its session", edits: []change{
		{"store/postgres/functions/13_maintain.sql", "|| 'ms', true);", "|| 'ms', false);"}},
		caught: "keeps the timeouts"}, in: "store/postgres", test: "RunsTwiceBehindAPooler$", env: "TUSK_TEST_HISTORY=30s"},
	{mutant: mutant{name: "maintenance goes on while it is held up", edits: []change{
		{"store/postgres/segment.go", "err != nil || !dropped {\n			return unlessBusy(err)",
			"unlessBusy(err) != nil {\n			return err"},
		{"store/postgres/functions/13_maintain.sql", "  return false;\nend $$;\n\n-- Makes the tables of a segment",
			"  perform set_config('lock_timeout', '2050ms', true);\n  return true;\nend $$;\n\n" +
				"-- Makes the tables of a segment"}},
		caught: "maintenance takes"}, in: "store/postgres", test: "RunsTwiceWhateverCommitsWhen$",
		env: "TUSK_TEST_HISTORY=2m"},
	{mutant: mutant{name: "a flush takes a lock for each of its tasks, however many", edits: []change{
		{"store/postgres/finish.go", "		case isBusy(err) && ctx.Err() == nil || apart && err == nil:\n",
			"		case apart && err == nil:\n"}},
		caught: "shared memory|finish of \\d+ tasks beside"}, in: "store/postgres", test: "RunsTwiceWhateverCommitsWhen$",
		env: "TUSK_TEST_HISTORY=15s"},
	{mutant: mutant{name: "functions look into the schemas of whoever calls them", edits: []change{
		{"store/postgres/functions/18_rights.sql",
			"    execute format('alter function tusk_fn.%I set search_path = pg_catalog, pg_temp', _name);\n", "    null;\n"}},
		caught: "mallory's functions ran|schemas of whoever calls them|expression is of type boolean"},
		in: "store/postgres", test: "^TestNobodyRunsCodeByWayOfTheSearchPath$"},
	{mutant: mutant{name: "a role that enqueues by SQL writes the log", edits: []change{
		{"store/postgres/sql/roles.sql", "-- {role}_read may read",
			"grant insert on {schema}.log to {role}_enqueue;;\n\n-- {role}_read may read"}},
		caught: "insert into tusk\\.log|lock_lane"}, in: "store/postgres",
		test: "^TestARoleThatEnqueuesBySQLCanDoNothingElse$"},
	{mutant: mutant{name: "groups of errors are kept for ever", edits: []change{
		{"store/postgres/sql/keep.sql", "  where y.last_at <= now()", "  where false and y.last_at <= now()"}},
		caught: "want 1"}, in: "store/postgres", test: "^TestGroupsOfErrorsGoWithTheStatistics$"},
	{mutant: mutant{name: "a mode of the driver that breaks Tusk is not named", edits: []change{
		{"store/postgres/postgres.go",
			"	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:\n", "	case pgx.QueryExecModeExec + 99:\n"}},
		caught: "default_query_exec_mode"}, in: "store/postgres", test: "^TestCheckNamesWhatBreaksTusk$"},
}
