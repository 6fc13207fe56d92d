/* calls.pml - threads of one client, each with a call in flight, and the actor that answers them
 * (client/lib/call.c).
 *
 * One thread polls the descriptors without the lock; the others wait, each at a condition of its
 * own. A thread that holds the lock may pump the mailbox: it then marks this process as awake
 * (`sleeping` = 0, so the actor does not ring), takes the event that the poller waits for, and ends
 * the calls of others. No thread polls by time here. A thread that sleeps forever while its
 * answer is in the ring is an invalid end state. Memory order is queue.pml's subject: steps under
 * the lock and the actor's two steps are atomic here.
 *
 * Each rule is needed; without it the model must fail (tests/models/models_test.py):
 *   NO_ARM_WAIT     a thread that waits at its condition does not arm the mailbox again (the defect
 *                   that made two readers 20 times slower than one)
 *   NO_KEEP_START   nor one that sent a request, which may take the event
 *   NO_KEEP_LEAVE   nor one that looked without waiting
 *   NO_LOOK_ARMED   arming without a look at the ring
 *   NO_HAND_OVER    a thread that leaves while no thread polls wakes none
 *   NO_WAKE_POLLER  the end of the poller's call does not wake it
 *   NO_WAKE_WAITER  the end of another thread's call does not wake that one */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#define CALLS  2 /* of each thread */
#define LOOKS  1 /* of each thread: waits with a time of 0 */
#define NOBODY 255

bit locked;
bit sleeping;          /* shared memory: the actor has to ring */
bit event;             /* at the descriptors: the doorbell was rung */
bit kicked;            /* the eventfd of the process itself */
bit polling;
byte polled_for = NOBODY;
bit requested[CLIENTS]; /* with the actor */
bit answered[CLIENTS];  /* in the ring */
bit done[CLIENTS];
bit waits[CLIENTS];
bit woken[CLIENTS];
byte ended; /* number of threads that made all their calls */

#define ring_holds (answered[0] || answered[1] || (CLIENTS > 2 && answered[CLIENTS - 1]))

inline lock()
{
    atomic { !locked -> locked = 1 }
}

inline unlock()
{
    locked = 0
}

/* One step: no other thread runs under the lock, and the actor's answers arrive before or after
 * it. */
inline pump()
{
    d_step {
        sleeping = 0;
        event = 0;
        at = 0;
        do
        :: at < CLIENTS ->
            if
            :: answered[at] ->
                answered[at] = 0;
                done[at] = 1;
#ifndef NO_WAKE_POLLER
                if
                :: polled_for == at -> kicked = 1
                :: else -> skip
                fi;
#endif
#ifndef NO_WAKE_WAITER
                if
                :: waits[at] -> woken[at] = 1
                :: else -> skip
                fi
#else
                skip
#endif
            :: else -> skip
            fi;
            at++
        :: else -> break
        od;
        at = 0
    }
}

/* came: the ring has frames, do not sleep. */
inline arm(came)
{
    sleeping = 1;
#ifdef NO_LOOK_ARMED
    came = 0;
#else
    d_step {
        came = ring_holds;
        if
        :: came -> sleeping = 0
        :: else -> skip
        fi
    }
#endif
}

inline poller_rearm_mailbox()
{
    if
    :: polling ->
        arm(came);
        if
        :: came -> kicked = 1; came = 0
        :: else -> skip
        fi
    :: else -> skip
    fi
}

inline hand_over()
{
#ifndef NO_HAND_OVER
    d_step {
        at = 0;
        do
        :: !polling && at < CLIENTS && !waits[at] -> at++
        :: !polling && at < CLIENTS && waits[at] -> woken[at] = 1; break
        :: else -> break
        od;
        at = 0
    }
#else
    skip
#endif
}

active [CLIENTS] proctype client()
{
    byte at, calls, looks;
    bit came, pumped;
    do
    :: calls < CALLS ->
        lock();
        done[_pid] = 0;
        requested[_pid] = 1;
        if
        :: event = 0 /* the send also polled the descriptors */
        :: skip
        fi;
#ifndef NO_KEEP_START
        poller_rearm_mailbox();
#endif
        unlock();
        if
        :: _pid == 0 -> (ended == CLIENTS - 1) /* does something else until all others are done */
        :: skip
        fi;
look:
        lock();
        pumped = 0;
        do
        :: done[_pid] -> break
        :: else ->
            pump();
            pumped = 1;
            if
            :: done[_pid] -> break
            :: !done[_pid] && looks < LOOKS -> looks++; break
            :: else -> skip
            fi;
            if
            :: polling ->
#ifndef NO_ARM_WAIT
                arm(came);
#endif
                if
                :: came -> came = 0
                :: else ->
                    atomic { waits[_pid] = 1; unlock() }
                    woken[_pid];
                    lock();
                    d_step { waits[_pid] = 0; woken[_pid] = 0 }
                fi
            :: else ->
                arm(came);
                if
                :: came -> came = 0
                :: else ->
                    atomic { polling = 1; polled_for = _pid; unlock() }
                    (event || kicked);
                    lock();
                    d_step { polling = 0; polled_for = NOBODY; kicked = 0 }
                fi
            fi;
            pumped = 0
        od;
#ifndef NO_KEEP_LEAVE
        if
        :: pumped -> poller_rearm_mailbox()
        :: else -> skip
        fi;
#endif
        hand_over();
        unlock();
        if
        :: done[_pid] -> calls++; looks = 0
        :: else -> goto look
        fi
    :: else -> break
    od;
    ended++
}

/* Answers in any order; it may let the first thread wait until all others are done. */
active proctype actor()
{
    byte who;
    bit slow;
    if
    :: slow = 1
    :: skip
    fi;
#define due_first (requested[0] && (!slow || ended == CLIENTS - 1))
end_actor:
    do
    :: atomic {
        due_first || requested[1] || (CLIENTS > 2 && requested[CLIENTS - 1]) ->
        if
        :: due_first -> who = 0
        :: requested[1] -> who = 1
        :: CLIENTS > 2 && requested[CLIENTS - 1] -> who = CLIENTS - 1
        fi;
        requested[who] = 0;
        answered[who] = 1
       }
       atomic {
        if
        :: sleeping -> sleeping = 0; event = 1
        :: else -> skip
        fi;
        who = 0
       }
    od
}
