-------------------------------- MODULE lease --------------------------------
\* The life of a lease on PostgreSQL, statement by statement: docs/design/model.md says
\* what it shows and how to run it. An action is one statement at READ COMMITTED, or one
\* step of a worker. A statement reads what is committed when it begins and may wait for
\* a lock. A lock is held until its transaction ends. A request that was sent may arrive
\* at any time, or never, whether or not its sender still waits for the answer.
EXTENDS Naturals, FiniteSets

CONSTANTS
  Tasks, Workers,
  Claims,     \* tokens a worker has for its claims
  Tries,      \* times a claim is sent: once, and again when no answer came
  Writes,     \* times an outcome is sent
  Beats,      \* beats a worker sends
  Attempts,   \* of a task
  InTx,       \* handlers may call CompleteTx
  Mortal,     \* workers that may be declared dead
  Failovers,  \* whether the server may fail over to an asynchronous standby
  Bugs        \* planted, each by its name

VARIABLES
  db,       \* what is committed
  standby,  \* what an asynchronous standby has of it
  claims,   \* requests to claim: [token, try] -> where the request is
  ends,     \* requests to finish: [token, task, try] -> where it is; try 0 is the leader's rescue
  txs,      \* users' transactions with CompleteTx: [token, task] -> where it is
  beats,    \* [worker, number] -> where the beat is
  asked,    \* tokens of claims the worker waits for
  tried,    \* times that each claim was sent
  runs,     \* attempts as the worker sees them
  beatNo,   \* the last beat each worker sent
  answered, \* the last beat it had an answer to
  cached,   \* the client remembers that the lane has a name
  failed,   \* the server has failed over
  acked     \* enqueues that this primary acknowledged

server == <<db, standby, failed>>
wire == <<claims, ends, txs, beats>>
worker == <<asked, tried, runs, beatNo, answered>>
client == <<cached, acked>>
vars == <<server, wire, worker, client>>

Tokens == Workers \X (1..Claims)
Ends == Tokens \X Tasks \X (0..Writes)
Owner(t) == t[1]
Numbered == Tasks \X (1..Attempts) \* attempts
NoLease == [open |-> {}, at |-> 0, sent |-> 0, row |-> FALSE]
Bug(b) == b \in Bugs

Init ==
  /\ db = [task |-> [k \in Tasks |-> "none"], n |-> [k \in Tasks |-> 0], lease |-> [t \in Tokens |-> NoLease],
           finished |-> {}, dead |-> {}, beat |-> [w \in Workers |-> 0],
           since |-> [w \in Workers |-> 0], names |-> [w \in Workers |-> {}], beside |-> FALSE, named |-> FALSE,
           effects |-> [k \in Tasks |-> 0], ended |-> [k \in Tasks |-> [n \in 1..Attempts |-> 0]]]
  /\ standby = <<>>
  /\ claims = [r \in Tokens \X (1..Tries) |-> [at |-> "idle", beat |-> 0, got |-> {}]]
  /\ ends = [r \in Ends |-> [at |-> "idle", n |-> 0, as |-> ""]]
  /\ txs = [r \in Tokens \X Tasks |-> "none"]
  /\ beats = [b \in Workers \X (1..Beats) |-> [at |-> "idle", names |-> {}, answered |-> 0]]
  /\ asked = {} /\ tried = [t \in Tokens |-> 0]
  /\ runs = [r \in Tokens \X Tasks |-> [at |-> "none", n |-> 0, as |-> "", sent |-> 0]]
  /\ beatNo = [w \in Workers |-> 0] /\ answered = [w \in Workers |-> 0]
  /\ cached = FALSE /\ acked = {} /\ failed = FALSE

-----------------------------------------------------------------------------
\* The view tusk.running, and who holds which lock.

Running(t, k) == k \in db.lease[t].open /\ <<t, k>> \notin db.finished
KeyShare(t) == \E k \in Tasks : txs[<<t, k>>] \in {"shared", "saw", "locked", "written"}
Holds(t, places) == \E r \in Ends : r[1] = t /\ ends[r].at \in places
Exclusive(t) == Holds(t, {"deleted", "whole", "write whole"})
NoKeyUpdate(t) == Holds(t, {"part", "saw", "locked", "write part"})
Free(t) == ~KeyShare(t) /\ ~Exclusive(t) /\ ~NoKeyUpdate(t)
TryFinish(t, k) == \* the advisory lock of a task is free
  /\ txs[<<t, k>>] \notin {"locked", "written"}
  /\ ~\E r \in Ends : r[1] = t /\ r[2] = k /\ ends[r].at \in {"locked", "write part"}
Knows(t) == t \in asked \/ \E k \in Tasks : runs[<<t, k>>].at \in {"runs", "ended"}

-----------------------------------------------------------------------------
Enqueue(k) ==
  /\ db.task[k] = "none"
  /\ db' = [db EXCEPT !.task[k] = "available", !.named = @ \/ ~cached]
  /\ cached' = TRUE /\ acked' = acked \union {k}
  /\ UNCHANGED <<standby, failed, wire, worker>>

\* The worker sends a claim, and sends it again when no answer came in time.
SendClaim(t) ==
  /\ tried[t] < Tries
  /\ IF tried[t] = 0 THEN (\A u \in asked : Owner(u) # Owner(t)) /\ (\A j \in 1..(t[2] - 1) : tried[<<t[1], j>>] > 0)
                     ELSE t \in asked
  /\ asked' = asked \union {t} /\ tried' = [tried EXCEPT ![t] = @ + 1]
  /\ claims' = [claims EXCEPT ![<<t, tried'[t]>>].at = "sent"]
  /\ UNCHANGED <<server, ends, txs, beats, runs, beatNo, answered, client>>

\* tusk.claim under the token's lock: is the worker alive, is the token known? A
\* repetition claims nothing, so a token claims once, whichever request arrives first.
ClaimJudge(t, i) ==
  LET r == <<t, i>>
      again == i > 1
      known == db.lease[t].row \/ (again /\ ~Bug("a repetition claims"))
      held == {x \in Numbered : again /\ Running(t, x[1]) /\ x[2] = db.n[x[1]]} IN
  /\ claims[r].at = "sent"
  /\ \A j \in 1..Tries : claims[<<t, j>>].at # "judged"
  /\ IF Owner(t) \in db.dead THEN claims' = [claims EXCEPT ![r].at = "refused"] /\ db' = db
     ELSE IF known
       THEN claims' = [claims EXCEPT ![r].at = "done", ![r].got = held] /\ db' = db
     ELSE claims' = [claims EXCEPT ![r].at = "judged", ![r].beat = db.beat[Owner(t)]] /\ db' = db
  /\ UNCHANGED <<standby, failed, ends, txs, beats, worker, client>>

\* tusk.claim under the lane's lock: takes what is available, and commits.
ClaimTake(t, i) ==
  LET r == <<t, i>>
      got == {k \in Tasks : db.task[k] = "available" /\ db.named /\ db.n[k] < Attempts} IN
  /\ claims[r].at = "judged"
  /\ claims' = [claims EXCEPT ![r].at = "done", ![r].got = {<<k, db.n[k] + 1>> : k \in got}]
  /\ db' = IF got = {} THEN db ELSE [db EXCEPT
       !.task = [k \in Tasks |-> IF k \in got THEN "leased" ELSE @[k]],
       !.n = [k \in Tasks |-> IF k \in got THEN @[k] + 1 ELSE @[k]],
       !.lease[t] = [open |-> got, at |-> claims[r].beat, sent |-> beatNo[Owner(t)], row |-> TRUE]]
  /\ UNCHANGED <<standby, failed, ends, txs, beats, worker, client>>

\* The answer to the last request reaches the worker. Others go to closed sockets.
ClaimAnswer(t) ==
  LET r == <<t, tried[t]>> IN
  /\ t \in asked /\ claims[r].at \in {"done", "refused"}
  /\ asked' = asked \ {t}
  /\ runs' = [x \in DOMAIN runs |-> IF x[1] # t \/ \A g \in claims[r].got : g[1] # x[2] THEN runs[x]
       ELSE [runs[x] EXCEPT !.at = "runs", !.n = CHOOSE n \in 1..Attempts : <<x[2], n>> \in claims[r].got]]
  /\ UNCHANGED <<server, wire, tried, beatNo, answered, client>>

-----------------------------------------------------------------------------
\* The handler returns. With a transaction whose commit has no answer yet it returns an error.
HandlerEnds(t, k, as) ==
  /\ runs[<<t, k>>].at = "runs"
  /\ as = "completed" => txs[<<t, k>>] = "none"
  /\ runs' = [runs EXCEPT ![<<t, k>>].at = "ended", ![<<t, k>>].as = as]
  /\ UNCHANGED <<server, wire, asked, tried, beatNo, answered, client>>

\* CompleteTx: tusk.finish_tx in the user's transaction, statement by statement.
Tx(t, k, from, to) == txs[<<t, k>>] = from /\ txs' = [txs EXCEPT ![<<t, k>>] = to]
TxOnly == UNCHANGED <<server, claims, ends, beats, worker, client>>

TxBeside(t, k) ==
  /\ InTx /\ runs[<<t, k>>].at \in {"runs", "ended"} /\ Tx(t, k, "none", "begun")
  /\ db' = [db EXCEPT !.beside = TRUE] \* nextval: no part of the transaction
  /\ UNCHANGED <<standby, failed, claims, ends, beats, worker, client>>
TxShare(t, k) ==
  /\ ~Exclusive(t)
  /\ IF db.lease[t].row THEN Tx(t, k, "begun", "shared") ELSE Tx(t, k, "begun", "over")
  /\ TxOnly
TxLock(t, k) ==
  /\ ~Bug("finish_tx judges by one statement")
  /\ IF TryFinish(t, k) THEN Tx(t, k, "shared", "locked") ELSE Tx(t, k, "shared", "over")
  /\ TxOnly
TxJudge(t, k) ==
  /\ IF Running(t, k) THEN Tx(t, k, "locked", "written") ELSE Tx(t, k, "locked", "over")
  /\ TxOnly
TxSnapshot(t, k) == \* planted: the snapshot of a statement that has not locked yet
  /\ Bug("finish_tx judges by one statement")
  /\ IF Running(t, k) THEN Tx(t, k, "shared", "saw") ELSE Tx(t, k, "shared", "over")
  /\ TxOnly
TxLockLate(t, k) ==
  /\ IF TryFinish(t, k) THEN Tx(t, k, "saw", "written") ELSE Tx(t, k, "saw", "over")
  /\ TxOnly
TxCommit(t, k) ==
  /\ Tx(t, k, "written", "committed")
  /\ db' = [db EXCEPT !.finished = @ \union {<<t, k>>}, !.task[k] = "completed", !.effects[k] = @ + 1,
                      !.ended[k][runs[<<t, k>>].n] = @ + 1]
  /\ UNCHANGED <<standby, failed, claims, ends, beats, worker, client>>
TxRollback(t, k) == \E from \in {"begun", "shared", "saw", "locked", "written"} : Tx(t, k, from, "over") /\ TxOnly
TxAnswer(t, k) == \* or it is lost, and HandlerEnds comes first
  /\ txs[<<t, k>>] = "committed" /\ runs[<<t, k>>].at = "runs"
  /\ runs' = [runs EXCEPT ![<<t, k>>].at = "over"]
  /\ UNCHANGED <<server, wire, asked, tried, beatNo, answered, client>>

-----------------------------------------------------------------------------
\* An outcome is written: tusk.finish_plain, finish_lease and finish, judge.
SendEnd(t, k) ==
  LET x == runs[<<t, k>>] r == <<t, k, x.sent + 1>> IN
  /\ x.at = "ended" /\ x.sent < Writes
  /\ runs' = [runs EXCEPT ![<<t, k>>].sent = @ + 1]
  /\ ends' = [ends EXCEPT ![r] = [at |-> "sent", n |-> x.n, as |-> x.as]]
  /\ UNCHANGED <<server, claims, txs, beats, asked, tried, beatNo, answered, client>>

\* tusk.rescue reads what a dead worker holds, and what a living one does not know of;
\* the leader sends the outcome.
Stray(t) == db.lease[t].row /\ t \notin db.names[Owner(t)] /\ db.lease[t].at < db.since[Owner(t)]
Rescue(t, k) ==
  /\ Running(t, k) /\ ends[<<t, k, 0>>].at \in {"idle", "lost", "held", "done"}
  /\ Owner(t) \in db.dead \/ (Stray(t) /\ ~Bug("strays are left"))
  /\ ends' = [ends EXCEPT ![<<t, k, 0>>] = [at |-> "sent", n |-> db.n[k], as |-> "failed"]]
  /\ UNCHANGED <<server, claims, txs, beats, worker, client>>

End(r, from, to) == ends[r].at = from /\ ends' = [ends EXCEPT ![r].at = to]
EndOnly == UNCHANGED <<server, claims, txs, beats, worker, client>>

FinishBegin(r) == End(r, "sent", IF ~db.beside /\ ends[r].as = "completed" THEN "plain" ELSE "lock") /\ EndOnly
FinishPlain(r) == \* delete from tusk.lease: waits for every lock
  /\ Free(r[1])
  /\ End(r, "plain", IF db.lease[r[1]].open = {r[2]} THEN "deleted" ELSE "lock") /\ EndOnly
FinishLock(r) == \* for update skip locked
  /\ End(r, "lock", IF ~db.lease[r[1]].row THEN "lost" ELSE IF Free(r[1]) THEN "whole" ELSE "share") /\ EndOnly
FinishJudge(r) == \* the lease is locked
  /\ End(r, "whole", IF Running(r[1], r[2]) THEN "write whole" ELSE "lost") /\ EndOnly
FinishShare(r) == \* for no key update: goes together with the locks of users' transactions
  /\ ~Exclusive(r[1]) /\ ~NoKeyUpdate(r[1])
  /\ End(r, "share", IF db.lease[r[1]].row THEN "part" ELSE "lost") /\ EndOnly
FinishTry(r) == \* tusk.judge: first the locks
  /\ ~Bug("judge looks before it locks")
  /\ End(r, "part", IF TryFinish(r[1], r[2]) THEN "locked" ELSE "held") /\ EndOnly
FinishOpen(r) == \* then, by a new statement, what is open
  /\ End(r, "locked", IF Running(r[1], r[2]) THEN "write part" ELSE "lost") /\ EndOnly
FinishOpenEarly(r) == \* planted
  /\ Bug("judge looks before it locks")
  /\ End(r, "part", IF Running(r[1], r[2]) THEN "saw" ELSE "lost") /\ EndOnly
FinishTryLate(r) ==
  /\ End(r, "saw", IF TryFinish(r[1], r[2]) THEN "write part" ELSE "held") /\ EndOnly

FinishLookAgain(r) == \* something is beside leases now: begin anew
  /\ db.beside /\ ~Bug("finish_plain does not look again") /\ End(r, "deleted", "lock") /\ EndOnly
FinishCommit(r) ==
  LET t == r[1] k == r[2]
      rest == db.lease[t].open \ {k}
      gone == ends[r].at # "write part" /\ \A o \in rest : ~Running(t, o) IN
  /\ \/ ends[r].at \in {"write whole", "write part"}
     \/ ends[r].at = "deleted" /\ (~db.beside \/ Bug("finish_plain does not look again"))
  /\ ends' = [ends EXCEPT ![r].at = "done"]
  /\ db' = [db EXCEPT !.ended[k][ends[r].n] = @ + 1,
                      !.task[k] = IF ends[r].as = "completed" THEN "completed" ELSE "available",
                      !.lease[t] = IF gone THEN NoLease ELSE [@ EXCEPT !.open = rest],
                      !.finished = IF gone THEN {f \in @ : f[1] # t} ELSE @ \ {<<t, k>>}]
  /\ UNCHANGED <<standby, failed, claims, txs, beats, worker, client>>
FinishAnswer(t, k) == \* held: the outcome is sent again
  LET x == runs[<<t, k>>] r == <<t, k, x.sent>> IN
  /\ x.at = "ended" /\ x.sent > 0 /\ ends[r].at \in {"done", "lost", "held"}
  /\ IF ends[r].at = "held" THEN ends' = [ends EXCEPT ![r].at = "sent"] /\ runs' = runs
     ELSE runs' = [runs EXCEPT ![<<t, k>>].at = "over"] /\ ends' = ends
  /\ UNCHANGED <<server, claims, txs, beats, asked, tried, beatNo, answered, client>>
Tidy(t) == \* a lease that only users' transactions ended tasks of
  /\ db.lease[t].row /\ Free(t) /\ \A k \in Tasks : ~Running(t, k)
  /\ db' = [db EXCEPT !.lease[t] = NoLease, !.finished = {f \in @ : f[1] # t}]
  /\ UNCHANGED <<standby, failed, wire, worker, client>>

-----------------------------------------------------------------------------
\* A beat carries its number, the tokens that the worker holds or has asked for, and
\* the last beat that the worker had an answer to when it wrote it.
SendBeat(w) ==
  /\ beatNo[w] < Beats /\ beatNo' = [beatNo EXCEPT ![w] = @ + 1]
  /\ beats' = [beats EXCEPT ![<<w, beatNo'[w]>>] =
       [at |-> "sent", names |-> {t \in Tokens : Owner(t) = w /\ Knows(t)}, answered |-> answered[w]]]
  /\ UNCHANGED <<server, claims, ends, txs, asked, tried, runs, answered, client>>
BeatArrives(w, i) ==
  LET b == beats[<<w, i>>]
      last == db.beat[w]
      late == i <= last /\ ~Bug("a late beat is accepted")
      inOrder == b.answered = last \/ Bug("any beat is compared with the one before") IN
  /\ b.at = "sent"
  /\ IF w \in db.dead \/ late
     THEN beats' = [beats EXCEPT ![<<w, i>>].at = "refused"] /\ db' = db
     ELSE /\ beats' = [beats EXCEPT ![<<w, i>>].at = "done"]
          /\ db' = [db EXCEPT !.beat[w] = i, !.names[w] = b.names, !.since[w] = IF inOrder THEN last ELSE @]
  /\ UNCHANGED <<standby, failed, claims, ends, txs, worker, client>>
BeatAnswer(w) ==
  /\ beatNo[w] > answered[w] /\ beats[<<w, beatNo[w]>>].at = "done"
  /\ answered' = [answered EXCEPT ![w] = beatNo[w]]
  /\ UNCHANGED <<server, wire, asked, tried, runs, beatNo, client>>
Dies(w) == \* its beats are overdue; its process may live, and knows nothing of it
  /\ w \in Mortal \ db.dead /\ db' = [db EXCEPT !.dead = @ \union {w}]
  /\ UNCHANGED <<standby, failed, wire, worker, client>>

-----------------------------------------------------------------------------
Replicate ==
  /\ Failovers /\ standby = <<>> /\ standby' = <<db>>
  /\ UNCHANGED <<db, failed, wire, worker, client>>
Failover == \* connections are cut, and what the standby did not have never was
  /\ standby # <<>> /\ ~failed /\ failed' = TRUE
  /\ db' = standby[1] /\ acked' = {}
  /\ cached' = (cached /\ Bug("lane names are cached for ever"))
  /\ claims' = [r \in DOMAIN claims |-> IF claims[r].at = "idle" THEN claims[r] ELSE [claims[r] EXCEPT !.at = "cut"]]
  /\ ends' = [r \in Ends |-> IF ends[r].at = "idle" THEN ends[r]
       ELSE [ends[r] EXCEPT !.at = IF r[3] = 0 THEN "idle" ELSE "cut"]]
  /\ beats' = [b \in DOMAIN beats |-> IF beats[b].at = "idle" THEN beats[b] ELSE [beats[b] EXCEPT !.at = "cut"]]
  /\ txs' = [x \in DOMAIN txs |-> IF txs[x] = "none" THEN "none" ELSE "over"]
  /\ UNCHANGED <<standby, worker>>

Next ==
  \/ \E k \in Tasks : Enqueue(k)
  \/ \E t \in Tokens :
       SendClaim(t) \/ ClaimAnswer(t) \/ Tidy(t) \/ \E i \in 1..Tries : ClaimJudge(t, i) \/ ClaimTake(t, i)
  \/ \E t \in Tokens, k \in Tasks :
       \/ \E as \in {"completed", "failed"} : HandlerEnds(t, k, as)
       \/ TxBeside(t, k) \/ TxShare(t, k) \/ TxLock(t, k) \/ TxJudge(t, k) \/ TxSnapshot(t, k) \/ TxLockLate(t, k)
       \/ TxCommit(t, k) \/ TxRollback(t, k) \/ TxAnswer(t, k)
       \/ SendEnd(t, k) \/ Rescue(t, k) \/ FinishAnswer(t, k)
  \/ \E r \in Ends :
       \/ FinishBegin(r) \/ FinishPlain(r) \/ FinishLock(r) \/ FinishJudge(r) \/ FinishShare(r) \/ FinishTry(r)
       \/ FinishOpen(r) \/ FinishOpenEarly(r) \/ FinishTryLate(r) \/ FinishLookAgain(r) \/ FinishCommit(r)
  \/ \E w \in Workers : SendBeat(w) \/ BeatAnswer(w) \/ Dies(w) \/ \E i \in 1..Beats : BeatArrives(w, i)
  \/ Replicate \/ Failover

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
OneEndOfAnAttempt == \A k \in Tasks, n \in 1..Attempts : db.ended[k][n] <= 1
EffectsOnce == \A k \in Tasks : db.effects[k] <= 1 /\ (db.effects[k] = 1 => db.task[k] = "completed")
NoTaskIsLost == \A k \in Tasks :
  /\ k \in acked => db.task[k] # "none"
  /\ db.task[k] = "available" => db.named
  /\ (db.task[k] = "leased") = (\E t \in Tokens : Running(t, k))
  /\ Cardinality({t \in Tokens : Running(t, k)}) <= 1
\* Two beats: what a living worker does not name in a beat that it sent after the answer
\* to another, which it sent after the lease came, is there for the leader to take back.
NothingIsLeasedUnknown == \A t \in Tokens :
  LET w == Owner(t)
      b == beats[<<w, db.beat[w]>>]
      inOrder == \* by this primary, and no late beat came between the two
        /\ beats[<<w, b.answered>>].at = "done"
        /\ \A i \in (b.answered + 1)..(db.beat[w] - 1) : beats[<<w, i>>].at # "done" IN
  (w \notin db.dead /\ db.beat[w] > 0 /\ \E k \in Tasks : Running(t, k))
    => t \in b.names \/ b.answered <= db.lease[t].sent \/ ~inOrder
         \/ \E k \in Tasks : ENABLED Rescue(t, k) \/ ends[<<t, k, 0>>].at \notin {"idle", "lost", "held", "done"}
\* Without a failover nobody takes from a living worker what it runs.
NothingIsTakenFromTheLiving == ~failed => \A t \in Tokens, k \in Tasks :
  (Owner(t) \notin db.dead /\ runs[<<t, k>>].at = "runs" /\ txs[<<t, k>>] # "committed") => Running(t, k)
LateBeatsChangeNothing == [][failed' = failed => \A w \in Workers : db'.beat[w] >= db.beat[w]]_vars
==============================================================================
