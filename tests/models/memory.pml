/* memory.pml - shared memory as processors have it: each thread's stores wait in a buffer of its own
 * before others see them. Spin alone knows only sequential consistency.
 *
 * -DTSO (x86): stores leave their buffer in order. Without it (Arm, and what C11 promises): stores to
 * different words leave in any order, but for what a release store or a release fence holds back.
 * Loads take the newest store of their own thread, else memory. They happen in program order here; where
 * the code has an acquire that keeps a load from moving, the models' NO_... variants move it.
 *
 * The including model defines WORDS and THREADS. Words are named as in the code. */
#ifndef BUFFER
#define BUFFER 5 /* stores a thread may have under way: a full buffer makes it wait */
#endif
#define RELEASE_FENCE 255 /* a mark in the buffer, no word */

typedef buffer {
    byte count;
    byte at[BUFFER];
    byte value[BUFFER];
    bit release[BUFFER]
};
byte memory[WORDS];
buffer buffers[THREADS];

inline buffer_add(who, where, what, is_release)
{
    atomic {
        buffers[who].count < BUFFER ->
        buffers[who].at[buffers[who].count] = where;
        buffers[who].value[buffers[who].count] = what;
        buffers[who].release[buffers[who].count] = is_release;
        buffers[who].count++
    }
}

#define store(who, where, what)         buffer_add(who, where, what, 0)
#define store_release(who, where, what) buffer_add(who, where, what, 1)

/* Waits until every store of this thread is visible to all: later loads come after. */
#define fence_seq_cst(who) (buffers[who].count == 0)

#ifdef TSO
#define fence_release(who) skip
#else
#define fence_release(who) buffer_add(who, RELEASE_FENCE, 0, 1)
#endif

/* scan_at: a local byte of the caller, 0 before and after. */
inline load(who, where, out)
{
    d_step {
        out = memory[where];
        do
        :: scan_at < buffers[who].count ->
            if
            :: buffers[who].at[scan_at] == where -> out = buffers[who].value[scan_at]
            :: else -> skip
            fi;
            scan_at++
        :: else -> break
        od;
        scan_at = 0
    }
}

/* Moves stores from the buffers to memory, one at a time, at any moment. */
active proctype storage()
{
    byte who, pick, at;
    bit may;
end_storage:
    do
    :: atomic {
        buffers[0].count > 0 || buffers[1].count > 0 ->
        if
        :: buffers[0].count > 0 -> who = 0
        :: buffers[1].count > 0 -> who = 1
        fi;
        may = 1;
#ifndef TSO
        do
        :: pick + 1 < buffers[who].count -> pick++
        :: break
        od;
        if
        :: pick > 0 && buffers[who].release[pick] -> may = 0 /* all before it must have left */
        :: else -> skip
        fi;
        do
        :: at < pick && may ->
            if
            :: buffers[who].at[at] == buffers[who].at[pick] ||
                buffers[who].at[at] == RELEASE_FENCE -> may = 0
            :: else -> skip
            fi;
            at++
        :: else -> break
        od;
        at = 0;
#endif
        if
        :: may ->
            if
            :: buffers[who].at[pick] != RELEASE_FENCE ->
                memory[buffers[who].at[pick]] = buffers[who].value[pick]
            :: else -> skip
            fi;
            buffers[who].count--;
            do
            :: pick < buffers[who].count ->
                buffers[who].at[pick] = buffers[who].at[pick + 1];
                buffers[who].value[pick] = buffers[who].value[pick + 1];
                buffers[who].release[pick] = buffers[who].release[pick + 1];
                pick++
            :: else -> break
            od;
            buffers[who].at[pick] = 0;
            buffers[who].value[pick] = 0;
            buffers[who].release[pick] = 0
        :: else -> skip
        fi;
        pick = 0;
        who = 0;
        may = 0
    }
    od
}
