/* tests/bench/policy/shapes.c - shapes of traffic that policies handle badly. */
#include "tests/bench/policy/policy.h"
#include "tests/bench/policy/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN_MAX 4096u
#define LIVE_MAX  512u

struct chain {
    uint32_t ids[CHAIN_MAX];
    uint32_t count;
    uint32_t turns; /* left */
};
struct shape {
    struct replay_trace *out;
    uint64_t state;
    uint64_t want;
    uint32_t id_next;
    bool failed;
    struct chain *live; /* LIVE_MAX */
    uint32_t live_count;
    struct chain prompts[8];
};

static uint64_t draw(struct shape *shape)
{
    uint64_t number = shape->state += UINT64_C(0x9e3779b97f4a7c15);
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

static uint32_t between(struct shape *shape, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(draw(shape) % (high - low + 1));
}

static bool chance(struct shape *shape, double share)
{
    return (double)(draw(shape) >> 11) / (double)(UINT64_C(1) << 53) < share;
}

/* 0, 1, 2, ...: the mean is `mean`. */
static uint32_t geometric(struct shape *shape, double mean)
{
    double uniform = (double)((draw(shape) >> 11) + 1) / (double)(UINT64_C(1) << 53);
    return (uint32_t)fmin(-log(uniform) * mean, 1e6);
}

static void extend(struct shape *shape, struct chain *chain, uint32_t count)
{
    for (uint32_t i = 0; i < count && chain->count < CHAIN_MAX; i++) {
        chain->ids[chain->count++] = shape->id_next++;
    }
}

static void emit(struct shape *shape, const struct chain *chain)
{
    struct replay_trace *out = shape->out;
    if (out->request_count == out->request_room) {
        uint64_t room = out->request_room * 2 + 1024;
        struct replay_request *all = realloc(out->requests, room * sizeof(*all));
        shape->failed = shape->failed || all == NULL;
        out->requests = all == NULL ? out->requests : all;
        out->request_room = all == NULL ? out->request_room : room;
    }
    if (out->id_count + chain->count > out->id_room) {
        uint64_t room = out->id_room * 2 + CHAIN_MAX;
        uint32_t *all = realloc(out->ids, room * sizeof(*all));
        shape->failed = shape->failed || all == NULL;
        out->ids = all == NULL ? out->ids : all;
        out->id_room = all == NULL ? out->id_room : room;
    }
    if (shape->failed) {
        return;
    }
    out->requests[out->request_count] =
        (struct replay_request){.timestamp_ms = out->request_count * 10,
                                .first_id = out->id_count,
                                .id_count = chain->count,
                                .input_length = chain->count * MODEL_BLOCK_TOKENS};
    out->request_count++;
    memcpy(&out->ids[out->id_count], chain->ids, chain->count * sizeof(chain->ids[0]));
    out->id_count += chain->count;
    out->blocks_max = SL_MAX(out->blocks_max, chain->count);
}

static bool goes_on(const struct shape *shape)
{
    return !shape->failed && shape->out->id_count < shape->want;
}

static void emit_once(struct shape *shape, const struct chain *before, uint32_t count)
{
    struct chain once = {.count = 0};
    if (before != NULL) {
        once = *before;
    }
    extend(shape, &once, count);
    emit(shape, &once);
}

/* The live chain at `at` becomes the last one. */
static struct chain *to_last(struct shape *shape, uint32_t at)
{
    struct chain moved = shape->live[at];
    memmove(&shape->live[at], &shape->live[at + 1],
            (shape->live_count - at - 1) * sizeof(shape->live[0]));
    shape->live[shape->live_count - 1] = moved;
    return &shape->live[shape->live_count - 1];
}

static void live_end(struct shape *shape, uint32_t at)
{
    (void)to_last(shape, at);
    shape->live_count--;
}

/* Conversations, of which recent ones continue most often, between runs of long documents that
 * are never requested again. */
static void shape_scan(struct shape *shape)
{
    while (goes_on(shape)) {
        uint32_t documents = chance(shape, 0.3) ? between(shape, 1, 30) : 0;
        for (uint32_t i = 0; i < documents && goes_on(shape); i++) {
            emit_once(shape, NULL, between(shape, 20, 200));
        }
        for (uint32_t turns = between(shape, 5, 60); turns > 0 && goes_on(shape); turns--) {
            if ((chance(shape, 0.3) || shape->live_count == 0) && shape->live_count < LIVE_MAX) {
                struct chain *fresh = &shape->live[shape->live_count++];
                *fresh = shape->prompts[between(shape, 0, 3)];
                extend(shape, fresh, between(shape, 1, 10));
            }
            uint32_t drawn = geometric(shape, 20);
            uint32_t back = SL_MIN(drawn, shape->live_count - 1);
            struct chain *turn = to_last(shape, shape->live_count - 1 - back);
            extend(shape, turn, between(shape, 1, 4));
            emit(shape, turn);
            if (chance(shape, 0.2)) {
                live_end(shape, between(shape, 0, shape->live_count - 1));
            }
        }
    }
}

/* A document with many requests within a short time, and none afterwards. */
static void shape_burst(struct shape *shape)
{
    while (goes_on(shape)) {
        if ((chance(shape, 0.05) || shape->live_count == 0) && shape->live_count < LIVE_MAX) {
            struct chain *fresh = &shape->live[shape->live_count++];
            fresh->count = 0;
            extend(shape, fresh, between(shape, 5, 150));
            fresh->turns = between(shape, 1, 80);
        }
        uint32_t at = between(shape, 0, shape->live_count - 1);
        emit_once(shape, &shape->live[at], between(shape, 1, 5));
        if (--shape->live[at].turns == 0) {
            live_end(shape, at);
        }
        if (chance(shape, 0.1)) {
            emit_once(shape, NULL, between(shape, 5, 100));
        }
    }
}

/* Agents that share few system prompts, and take many turns each. */
static void shape_agents(struct shape *shape)
{
    uint32_t width = between(shape, 8, 200);
    while (goes_on(shape)) {
        while (shape->live_count < width) {
            struct chain *fresh = &shape->live[shape->live_count++];
            uint32_t prompt = geometric(shape, 1.4);
            *fresh = shape->prompts[SL_MIN(prompt, 5u)];
            extend(shape, fresh, between(shape, 1, 12));
            fresh->turns = between(shape, 1, 40);
        }
        uint32_t at = between(shape, 0, shape->live_count - 1);
        extend(shape, &shape->live[at], between(shape, 1, 4));
        emit(shape, &shape->live[at]);
        if (--shape->live[at].turns == 0) {
            live_end(shape, at);
        }
    }
}

/* The same documents again and again, more than fit. */
static void shape_loop(struct shape *shape)
{
    for (shape->live_count = 0; shape->live_count < 300; shape->live_count++) {
        extend(shape, &shape->live[shape->live_count], between(shape, 10, 60));
    }
    for (uint32_t at = 0; goes_on(shape); at = (at + 1) % 300) {
        emit_once(shape, &shape->live[at], 1);
    }
}

/* Few documents are popular, and the popular ones change now and then. */
static void shape_shift(struct shape *shape)
{
    uint32_t places[LIVE_MAX];
    for (uint32_t i = 0; i < LIVE_MAX; i++) {
        places[i] = i;
        extend(shape, &shape->live[i], between(shape, 3, 40));
    }
    while (goes_on(shape)) {
        for (uint32_t i = chance(shape, 0.002) ? LIVE_MAX - 1 : 0; i > 0; i--) {
            uint32_t other = between(shape, 0, i);
            uint32_t kept = places[i];
            places[i] = places[other];
            places[other] = kept;
        }
        double popular = pow((double)between(shape, 1, 1000000) / 1e6, -1.0 / 0.6);
        uint32_t at = (uint32_t)fmin(popular - 1, LIVE_MAX - 1);
        emit_once(shape, &shape->live[places[at]], between(shape, 1, 3));
    }
}

/* The n-th of `count`, of which the first are drawn most often. */
static uint32_t zipf(struct shape *shape, uint32_t count)
{
    double uniform = (double)((draw(shape) >> 11) + 1) / (double)(UINT64_C(1) << 53);
    return (uint32_t)fmin(exp(uniform * log((double)count + 1)) - 1, count - 1);
}

/* Documents that go out of fashion one by one, and conversations about them. */
static void shape_drift(struct shape *shape)
{
    for (shape->live_count = 0; shape->live_count < LIVE_MAX; shape->live_count++) {
        extend(shape, &shape->live[shape->live_count], between(shape, 3, 40));
    }
    double step = (double)between(shape, 1, 20) / 100;
    for (uint32_t turn = 0; goes_on(shape); turn++) {
        if (chance(shape, step)) { /* the newest is the most popular */
            struct chain *fresh = to_last(shape, 0);
            fresh->count = 0;
            extend(shape, fresh, between(shape, 3, 40));
        }
        emit_once(shape, &shape->live[LIVE_MAX - 1 - zipf(shape, LIVE_MAX)], between(shape, 1, 3));
    }
}

/* A prompt is followed by some of many documents, in the order in which they were found: what
 * follows the first is shared only by requests that found the same ones before it. */
#define RAG_DOCUMENTS 200u
#define RAG_PLACES    (1u << 17)
struct rag_place {
    uint32_t before, document, first_id; /* 0: not made yet */
};

static void rag_add(struct shape *shape, struct rag_place *places, struct chain *chain,
                    uint32_t document, uint32_t blocks)
{
    uint32_t before = chain->ids[chain->count - 1];
    uint32_t at = (before * 2654435761u + document * 40503u) % RAG_PLACES;
    if (places[at].before != before || places[at].document != document) {
        places[at] = (struct rag_place){before, document, shape->id_next};
        extend(shape, chain, blocks);
        return;
    }
    for (uint32_t i = 0; i < blocks; i++) {
        chain->ids[chain->count++] = places[at].first_id + i;
    }
}

static void shape_rag(struct shape *shape)
{
    struct rag_place *places = calloc(RAG_PLACES, sizeof(*places));
    uint32_t blocks[RAG_DOCUMENTS];
    shape->failed = shape->failed || places == NULL;
    for (uint32_t i = 0; i < RAG_DOCUMENTS; i++) {
        blocks[i] = between(shape, 2, 12);
    }
    while (goes_on(shape)) {
        struct chain chain = shape->prompts[between(shape, 0, 3)];
        for (uint32_t count = between(shape, 1, 4); count > 0; count--) {
            uint32_t document = zipf(shape, RAG_DOCUMENTS);
            rag_add(shape, places, &chain, document, blocks[document]);
        }
        emit_once(shape, &chain, between(shape, 1, 3));
    }
    free(places);
}

/* Tenants with different habits share a node, and their shares change: one has conversations,
 * one reads documents once, one cycles through the same documents, one has periodic jobs. */
static void shape_tenants(struct shape *shape)
{
    uint32_t shares[4] = {5, 1, 1, 3};
    uint32_t turn = 0;
    struct chain *live = shape->live;
    for (shape->live_count = 0; shape->live_count < 240; shape->live_count++) {
        live[shape->live_count] = shape->prompts[shape->live_count / 60];
        extend(shape, &live[shape->live_count], between(shape, 2, 20));
    }
    for (uint32_t step = 0; goes_on(shape); step++) {
        if (step % 500 == 499) {
            shares[between(shape, 0, 3)] = between(shape, 0, 9);
        }
        uint32_t all = shares[0] + shares[1] + shares[2] + shares[3];
        uint32_t drawn = between(shape, 0, SL_MAX(all, 1u) - 1);
        if (drawn < shares[0]) {
            struct chain *talk = &live[zipf(shape, 120)];
            extend(shape, talk, between(shape, 1, 3));
            emit(shape, talk);
            if (chance(shape, 0.1) || talk->count > 200) {
                *talk = shape->prompts[between(shape, 0, 3)];
                extend(shape, talk, between(shape, 1, 8));
            }
        } else if (drawn < shares[0] + shares[1]) {
            emit_once(shape, NULL, between(shape, 20, 120));
        } else if (drawn < shares[0] + shares[1] + shares[2]) {
            emit_once(shape, &live[120 + turn++ % 60], 1);
        } else {
            emit_once(shape, &live[180 + step / 7 % 60], between(shape, 1, 4));
        }
    }
}

/* One kind of traffic at a time: what was learned from one is wrong for the next. */
static void shape_phases(struct shape *shape)
{
    static void (*const kinds[])(struct shape * shape) = {shape_burst, shape_agents, shape_scan,
                                                          shape_drift, shape_loop,   shape_rag};
    uint64_t want = shape->want;
    for (shape->want = 0; shape->want < want && !shape->failed;) {
        shape->want = SL_MIN(shape->want + between(shape, 5000, 30000), want);
        memset(shape->live, 0, LIVE_MAX * sizeof(shape->live[0]));
        shape->live_count = 0;
        kinds[between(shape, 0, SL_COUNT(kinds) - 1)](shape);
    }
    shape->want = want;
}

static sl_err shape_conversation(uint64_t seed, uint64_t want, struct replay_trace *out,
                                 struct sl_error *why)
{
    struct workload_options options = {.requests = want,
                                       .seed = seed,
                                       .block_tokens = MODEL_BLOCK_TOKENS,
                                       .sessions = 1000,
                                       .system_prompts = 16,
                                       .rate_per_s = 3};
    struct workload *workload = NULL;
    struct workload_request request;
    struct shape shape = {.out = out, .want = want};
    struct chain chain;
    sl_err err = workload_create(&options, &workload, why);
    while (err == SL_OK && goes_on(&shape) && workload_next(workload, &request)) {
        chain.count = SL_MIN(request.hash_count, CHAIN_MAX);
        memcpy(chain.ids, request.hash_ids, chain.count * sizeof(chain.ids[0]));
        emit(&shape, &chain);
        out->requests[out->request_count - 1].input_length = request.input_length;
        out->requests[out->request_count - 1].timestamp_ms = request.timestamp_ms;
    }
    bool failed = err == SL_OK && (shape.failed || workload_failed(workload));
    workload_destroy(&workload);
    return failed ? sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the workload") : err;
}

sl_err model_generate(const char *name, uint64_t seed, uint64_t reference_count,
                      struct replay_trace *out, struct sl_error *why)
{
    static const struct {
        const char *name;
        void (*make)(struct shape *shape);
    } shapes[] = {{"scan", shape_scan}, {"burst", shape_burst},     {"agents", shape_agents},
                  {"loop", shape_loop}, {"shift", shape_shift},     {"drift", shape_drift},
                  {"rag", shape_rag},   {"tenants", shape_tenants}, {"phases", shape_phases}};
    *out = (struct replay_trace){0};
    if (strcmp(name, "conversation") == 0) {
        return shape_conversation(seed, reference_count, out, why);
    }
    for (uint32_t i = 0; i < SL_COUNT(shapes); i++) {
        if (strcmp(name, shapes[i].name) != 0) {
            continue;
        }
        struct shape *shape = calloc(1, sizeof(*shape));
        struct chain *live = calloc(LIVE_MAX, sizeof(*live));
        bool fine = shape != NULL && live != NULL;
        if (fine) {
            *shape = (struct shape){
                .out = out, .state = seed * 2654435761u, .want = reference_count, .live = live};
            for (uint32_t k = 0; k < SL_COUNT(shape->prompts); k++) {
                extend(shape, &shape->prompts[k],
                       strcmp(name, "agents") == 0 ? between(shape, 4, 40) : between(shape, 1, 8));
            }
            shapes[i].make(shape);
            fine = !shape->failed;
        }
        free(live);
        free(shape);
        return fine ? SL_OK : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the trace");
    }
    return sl_fail(why, SL_ERR_INVALID, "no shape '%s': it is one of %s", name, MODEL_SHAPES);
}
