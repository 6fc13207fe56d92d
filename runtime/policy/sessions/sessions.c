/* runtime/policy/sessions/sessions.c - the table of sessions, the worth of their pauses, and which
 * sessions are due. */
#include "runtime/policy/sessions/sessions.h"
#include "runtime/base/sl_base.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_heap.h"
#include "runtime/base/sl_table.h"
#include "runtime/policy/density/density.h"

#include <math.h>
#include <stdlib.h>

#define COUNT_MAX (UINT32_C(1) << 20)
/* Ages of a pause are shares of its expected length. After the last one the session is given up. */
#define PAUSE_SHARES 32u
#define AGES         (4 * PAUSE_SHARES)
/* Initial estimate: of four sessions two return at about the reported time, and three within a
 * second if the pause was reported as over. */
#define FIRST_SESSIONS 4.0
#define FIRST_REPORTED 2.0
#define FIRST_OVER     3.0
/* Observations are halved after this number of returns. */
#define HALVE_BACK 4096.0
#define LEAST      1e-9
/* A session is due only if it returns within the horizon with this chance: otherwise too many reads
 * would be useless. */
#define CHANCE_MIN     0.25
#define CHANCE_GUESSED 0.5
/* Blocks worth less per second are not worth a read. */
#define WORTH_LEAST 1e-6
/* Target for how full the room for brought blocks is. If it is fuller, sessions are brought later,
 * when they are worth more; each try and each turn moves the edge a bit. */
#define FULL_AIM   0.7
#define EDGE_MOVES 0.1
#define EDGE_FALLS 0.999
/* Learned values are recomputed after this number of turns. */
#define SETTLE_TURNS 128u
/* The shortest pause; the assumed rest of one that is over. */
#define EXPECTED_NS_MIN (100 * SL_NS_PER_MS)
#define OVER_NS         SL_NS_PER_S
/* A session is checked again when its pause is longer by a 32nd and this, at multiples of this so
 * that checks share wake-ups. */
#define LOOK_NS    (10 * SL_NS_PER_MS)
#define LOOK_SHARE 32u

struct session {
    uint64_t from_ns;     /* start of the pause: the last request, or the last report */
    uint64_t last_ns;     /* length of the previous pause; 0: unknown */
    uint64_t expected_ns; /* expected length of this one; 0: unknown */
    uint64_t counted_ns;  /* age of the pause when it was counted last */
    uint64_t here_ns;     /* its blocks are in memory until then; 0: not brought */
    struct sl_table_node by_id, by_tail;
    uint32_t free_next;
    enum { REPORTED, OVER, GUESSED, CLASSES } class; /* guessed: as long as the previous one */
    bool report_only; /* reported without a request: a store does not restart it */
    uint32_t asked;   /* serial of the result whose outcome is awaited; 0: none */
};

/* Pauses of one class by age: time that sessions spent there, in shares of the expected length;
 * returns there; and the worth of having a session's blocks in memory from there on. */
struct predictor {
    double exposure[AGES], back[AGES];
    struct sl_worth worth[AGES + 1]; /* the last is after all ages */
};

struct sl_sessions {
    struct predictor predictor[CLASSES];
    struct session *all;
    uint32_t free_first;
    struct sl_table by_id, by_tail;
    struct sl_heap by_turn, due;
    double edge;      /* worth of the memory's next victim */
    double edge_here; /* makes brought blocks fit: rises when the room is too full */
    uint64_t lead_ns;
    uint32_t turns, serial;
    sl_sessions_here_fn here;
    void *here_context;
};

/* ---- pauses ---- */

static void predictor_update_worth(struct predictor *predictor)
{
    double rate[AGES], width[AGES], back = 0;
    for (uint32_t i = 0; i < AGES; i++) {
        rate[i] = fmax(predictor->back[i] / fmax(predictor->exposure[i], LEAST), LEAST);
        width[i] = 1.0;
        back += predictor->back[i];
    }
    for (uint32_t i = 0; back >= HALVE_BACK && i < AGES; i++) {
        predictor->exposure[i] /= 2;
        predictor->back[i] /= 2;
    }
    sl_gittins(rate, width, AGES, predictor->worth);
}

static void predictor_init(struct predictor *predictor, double back)
{
    for (uint32_t i = 0; i < AGES; i++) {
        predictor->exposure[i] = FIRST_SESSIONS;
    }
    predictor->back[PAUSE_SHARES - 1] = predictor->back[PAUSE_SHARES] = back / 2;
    predictor_update_worth(predictor);
}

static uint64_t age_ns(const struct session *at, uint64_t now_ns)
{
    return now_ns > at->from_ns ? now_ns - at->from_ns : 0;
}

static uint64_t share_ns(const struct session *at)
{
    return at->expected_ns / PAUSE_SHARES;
}

/* Counts the pause up to now. back: a turn ends it. */
static void pause_count(struct sl_sessions *sessions, struct session *at, uint64_t now_ns,
                        bool back)
{
    if (at->expected_ns == 0) {
        return;
    }
    struct predictor *predictor = &sessions->predictor[at->class];
    double from = (double)at->counted_ns / (double)share_ns(at);
    double to = (double)age_ns(at, now_ns) / (double)share_ns(at);
    for (uint32_t i = (uint32_t)fmin(from, AGES); i < AGES && i < to; i++) {
        predictor->exposure[i] += fmin(to, i + 1.0) - fmax(from, i);
    }
    if (back && to < AGES) {
        predictor->back[(uint32_t)to] += 1;
    }
    at->counted_ns = age_ns(at, now_ns);
}

/* ---- sessions ---- */

sl_err sl_sessions_create(uint32_t count_max, sl_sessions_here_fn here, void *context,
                          struct sl_sessions **out)
{
    SL_ASSERT(count_max > 0 && count_max <= COUNT_MAX);
    struct sl_sessions *sessions = calloc(1, sizeof(*sessions));
    if (sessions == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    predictor_init(&sessions->predictor[REPORTED], FIRST_REPORTED);
    predictor_init(&sessions->predictor[OVER], FIRST_OVER);
    predictor_init(&sessions->predictor[GUESSED], 0);
    sessions->edge = sessions->edge_here = WORTH_LEAST;
    sessions->here = here;
    sessions->here_context = context;
    sessions->all = calloc(count_max, sizeof(*sessions->all));
    if (sessions->all == NULL || !sl_table_reserve(&sessions->by_id, count_max) ||
        !sl_table_reserve(&sessions->by_tail, count_max) ||
        sl_heap_init(&sessions->by_turn, count_max, NULL) != SL_OK ||
        sl_heap_init(&sessions->due, count_max, NULL) != SL_OK) {
        sl_sessions_destroy(&sessions);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count_max; i++) {
        sessions->all[i].free_next = i + 1 < count_max ? i + 1 : SL_SESSION_NONE;
    }
    *out = sessions;
    return SL_OK;
}

void sl_sessions_destroy(struct sl_sessions **sessions)
{
    if (*sessions != NULL) {
        sl_table_fini(&(*sessions)->by_id);
        sl_table_fini(&(*sessions)->by_tail);
        sl_heap_fini(&(*sessions)->by_turn);
        sl_heap_fini(&(*sessions)->due);
        free((*sessions)->all);
        free(*sessions);
        *sessions = NULL;
    }
}

void sl_sessions_drop(struct sl_sessions *sessions, uint32_t session)
{
    struct session *at = &sessions->all[session];
    sl_table_remove(&sessions->by_id, &at->by_id);
    sl_table_remove(&sessions->by_tail, &at->by_tail);
    sl_heap_clear(&sessions->due, session);
    sl_heap_clear(&sessions->by_turn, session);
    *at = (struct session){.free_next = sessions->free_first};
    sessions->free_first = session;
}

static struct session *session_make(struct sl_sessions *sessions, uint64_t id)
{
    if (sessions->free_first == SL_SESSION_NONE) {
        sl_sessions_drop(sessions, sl_sessions_oldest(sessions));
    }
    struct session *at = &sessions->all[sessions->free_first];
    sessions->free_first = at->free_next;
    if (id != 0) {
        sl_table_add(&sessions->by_id, &at->by_id, sl_table_hash(id));
    }
    return at;
}

static uint32_t number_of(const struct sl_sessions *sessions, const struct session *at)
{
    return (uint32_t)(at - sessions->all);
}

static struct session *find_by_id(const struct sl_sessions *sessions, uint64_t id)
{
    return SL_TABLE_FIRST(&sessions->by_id, sl_table_hash(id), struct session, by_id);
}

static struct session *find_by_block(const struct sl_sessions *sessions, uint64_t block)
{
    return SL_TABLE_FIRST(&sessions->by_tail, sl_table_hash(block), struct session, by_tail);
}

static struct session *find(const struct sl_sessions *sessions, const struct sl_turn *turn)
{
    struct session *found = NULL;
    if (turn->id != 0) {
        return find_by_id(sessions, turn->id);
    }
    for (uint32_t i = turn->count; found == NULL && i-- > 0;) {
        found = find_by_block(sessions, turn->blocks[i]);
    }
    return found == NULL && turn->before != 0 ? find_by_block(sessions, turn->before) : found;
}

/* The last block may be incomplete, and differ when the chain continues: then the one before it
 * identifies the chain. A chain of one block is too common. 0: none. */
static uint64_t tail_of(const struct sl_turn *turn)
{
    uint64_t total = (uint64_t)turn->depth + turn->count;
    if (turn->count == 0 || total < 2) {
        return 0;
    }
    if (total == 2) {
        return turn->blocks[turn->count - 1];
    }
    return turn->count > 1 ? turn->blocks[turn->count - 2] : turn->before;
}

/* Age of the pause when blocks requested now would arrive, in shares of the expected length. */
static uint64_t age_at_arrival(const struct sl_sessions *sessions, const struct session *at,
                               uint64_t now_ns)
{
    return (age_ns(at, now_ns) + sessions->lead_ns) / share_ns(at);
}

/* Schedules the next check, when the pause is a bit longer; none after the last age. */
static void check_schedule(struct sl_sessions *sessions, struct session *at, uint64_t now_ns)
{
    uint64_t at_ns = now_ns + age_ns(at, now_ns) / LOOK_SHARE + LOOK_NS;
    if (at->expected_ns != 0 && age_at_arrival(sessions, at, now_ns) < AGES) {
        sl_heap_set(&sessions->due, number_of(sessions, at), at_ns - at_ns % LOOK_NS);
    } else {
        sl_heap_clear(&sessions->due, number_of(sessions, at));
    }
}

static void pause_begin(struct session *at, uint64_t expected_ns, uint64_t now_ns)
{
    at->expected_ns = expected_ns != 0 ? SL_MAX(expected_ns, EXPECTED_NS_MIN) : 0;
    at->from_ns = now_ns;
    at->counted_ns = 0;
    at->class = REPORTED;
    at->report_only = false;
}

uint32_t sl_sessions_turn(struct sl_sessions *sessions, const struct sl_turn *turn, uint64_t now_ns,
                          bool *fresh)
{
    uint64_t tail = tail_of(turn);
    struct session *at = find(sessions, turn);
    *fresh = at == NULL && !turn->ends && (turn->id != 0 || tail != 0);
    if (at == NULL && !*fresh) {
        return SL_SESSION_NONE;
    }
    if (turn->ends) {
        sl_sessions_drop(sessions, number_of(sessions, at));
        return number_of(sessions, at);
    }
    at = *fresh ? session_make(sessions, turn->id) : at;
    uint64_t expected_ns = turn->pause_ns;
    if (turn->load) {
        pause_count(sessions, at, now_ns, true);
        at->last_ns = *fresh ? 0 : age_ns(at, now_ns);
    }
    if (turn->load || expected_ns != 0 || !at->report_only) {
        bool guess = expected_ns == 0 && (turn->load || at->class == GUESSED);
        pause_begin(at,
                    expected_ns != 0 ? expected_ns
                    : guess          ? at->last_ns
                                     : at->expected_ns,
                    now_ns);
        at->class = guess ? GUESSED : REPORTED;
    }
    at->here_ns = 0;
    at->asked = 0;
    if (tail != 0) {
        sl_table_remove(&sessions->by_tail, &at->by_tail);
        sl_table_add(&sessions->by_tail, &at->by_tail, sl_table_hash(tail));
    }
    sl_heap_set(&sessions->by_turn, number_of(sessions, at), now_ns);
    sessions->turns++;
    for (uint32_t i = 0; sessions->turns % SETTLE_TURNS == 0 && i < CLASSES; i++) {
        predictor_update_worth(&sessions->predictor[i]);
    }
    sessions->edge_here = fmax(sessions->edge_here * EDGE_FALLS, WORTH_LEAST);
    check_schedule(sessions, at, now_ns);
    return number_of(sessions, at);
}

bool sl_sessions_report_pause(struct sl_sessions *sessions, uint64_t id, uint64_t pause_ns,
                              uint64_t now_ns)
{
    struct session *at = id != 0 ? find_by_id(sessions, id) : NULL;
    if (at == NULL) {
        return false;
    }
    pause_count(sessions, at, now_ns, false);
    pause_begin(at, pause_ns == SL_SESSION_PAUSE_UNKNOWN ? 0 : SL_MAX(pause_ns, 1u), now_ns);
    at->class = pause_ns == 0 ? OVER : REPORTED;
    at->expected_ns = pause_ns == 0 ? OVER_NS : at->expected_ns;
    at->report_only = at->expected_ns != 0;
    if (at->asked == 0) { /* otherwise it is checked when the outcome is reported */
        check_schedule(sessions, at, now_ns);
        if (at->class == OVER) {
            sl_heap_set(&sessions->due, number_of(sessions, at), now_ns);
        }
    }
    return true;
}

uint32_t sl_sessions_oldest(const struct sl_sessions *sessions)
{
    return sessions->by_turn.count > 0 ? sessions->by_turn.items[0].id : SL_SESSION_NONE;
}

uint32_t sl_sessions_count(const struct sl_sessions *sessions)
{
    return sessions->by_turn.count;
}

/* ---- due sessions ---- */

void sl_sessions_edge(struct sl_sessions *sessions, double hits_a_second, uint64_t lead_ns)
{
    sessions->edge = fmax(hits_a_second, WORTH_LEAST);
    sessions->lead_ns = lead_ns;
}

uint64_t sl_sessions_next_ns(const struct sl_sessions *sessions)
{
    return sl_heap_next_ns(&sessions->due);
}

bool sl_sessions_due(struct sl_sessions *sessions, uint64_t now_ns, struct sl_session_due *out)
{
    struct sl_heap_item item;
    while (sl_heap_pop(&sessions->due, now_ns, &item)) {
        struct session *at = &sessions->all[item.id];
        uint64_t age = SL_MIN(age_at_arrival(sessions, at, now_ns), AGES);
        const struct sl_worth *worth = &sessions->predictor[at->class].worth[age];
        double second = (double)SL_NS_PER_S / (double)share_ns(at);
        double a_second = worth->hit > 0 ? worth->hit / worth->time * second : 0;
        pause_count(sessions, at, now_ns, false);
        if (a_second > fmax(sessions->edge, sessions->edge_here) &&
            worth->hit >= (at->class == GUESSED ? CHANCE_GUESSED : CHANCE_MIN) &&
            (now_ns + sessions->lead_ns >= at->here_ns ||
             (sessions->here != NULL && !sessions->here(sessions->here_context, item.id)))) {
            uint64_t until_ns = at->from_ns + (worth->end + 1) * share_ns(at);
            at->asked = ++sessions->serial;
            *out = (struct sl_session_due){item.id, at->asked, a_second, until_ns - now_ns};
            return true;
        }
        check_schedule(sessions, at, now_ns);
    }
    return false;
}

void sl_sessions_result(struct sl_sessions *sessions, const struct sl_session_due *due, bool here,
                        double full, uint64_t now_ns)
{
    struct session *at = &sessions->all[due->session];
    sessions->edge_here =
        fmax(sessions->edge_here * exp(EDGE_MOVES * (full - FULL_AIM)), WORTH_LEAST);
    if (at->asked == due->serial) { /* otherwise it had another turn, or was dropped */
        at->asked = 0;
        at->here_ns = here ? sl_deadline_ns(now_ns, due->for_ns) : 0;
        check_schedule(sessions, at, now_ns);
    }
}
