/* tests/unit/ipc/msg/stepped_env.c - see stepped_env.h. */
#include "tests/unit/ipc/msg/stepped_env.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct stepped *stepped_of(struct sl_env *env)
{
    return (struct stepped *)env;
}

static sl_err env_send(struct sl_env *env, const char *to, const void *frame, size_t length_bytes,
                       bool reply)
{
    struct stepped *stepped = stepped_of(env);
    if (stepped->unreachable) {
        return SL_ERR_UNREACHABLE;
    }
    ck_assert_uint_lt(stepped->sent_count, STEPPED_SENT_MAX);
    struct stepped_frame *kept = &stepped->sent[stepped->sent_count++];
    kept->reply = reply;
    kept->bytes = malloc(length_bytes);
    kept->length_bytes = length_bytes;
    memcpy(kept->bytes, frame, length_bytes);
    strncpy(kept->to, to, sizeof(kept->to) - 1);
    return SL_OK;
}

static void env_wake_at(struct sl_env *env, uint64_t at_ns)
{
    struct stepped *stepped = stepped_of(env);
    stepped->wake_ns = SL_MIN(stepped->wake_ns, at_ns);
}

static sl_err env_watch(struct sl_env *env, struct sl_proc_id proc, uint64_t cookie)
{
    (void)cookie;
    struct stepped *stepped = stepped_of(env);
    ck_assert_uint_lt(stepped->watch_count, STEPPED_WATCHES_MAX);
    stepped->watches[stepped->watch_count++] = proc;
    return SL_OK;
}

static void env_unwatch(struct sl_env *env, struct sl_proc_id proc)
{
    struct stepped *stepped = stepped_of(env);
    for (uint32_t i = 0; i < stepped->watch_count; i++) {
        if (sl_proc_id_equal(stepped->watches[i], proc)) {
            stepped->watches[i--] = stepped->watches[--stepped->watch_count];
        }
    }
}

static bool env_alive(struct sl_env *env, struct sl_proc_id proc)
{
    (void)env;
    return proc.pid != 0;
}

static void env_kill(struct sl_env *env, struct sl_proc_id proc)
{
    (void)env;
    (void)proc;
}

static sl_err env_disk_open(struct sl_env *env, const char *directory, uint32_t queue_depth,
                            bool direct, struct sl_disk **out, struct sl_error *why)
{
    (void)env, (void)directory, (void)queue_depth, (void)direct, (void)out;
    return sl_fail(why, SL_ERR_UNSUPPORTED, "no disk here");
}

static sl_err env_job(struct sl_env *env, uint32_t thread_count,
                      sl_err (*job)(void *context, uint32_t thread), void *context, uint64_t cookie)
{
    (void)env, (void)thread_count, (void)job, (void)context, (void)cookie;
    return SL_ERR_UNSUPPORTED;
}

static uint64_t env_random(struct sl_env *env)
{
    return ++env->next_seq * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t env_wall_ns(struct sl_env *env)
{
    return UINT64_C(1700000000) * SL_NS_PER_S + env->now_ns;
}

static void env_finish(struct sl_env *env)
{
    stepped_of(env)->finished = true;
}

static const struct sl_env_ops stepped_ops = {
    .send = env_send,
    .wake_at = env_wake_at,
    .watch = env_watch,
    .unwatch = env_unwatch,
    .alive = env_alive,
    .locked = env_alive,
    .kill = env_kill,
    .disk_open = env_disk_open,
    .job = env_job,
    .random_u64 = env_random,
    .wall_ns = env_wall_ns,
    .finish = env_finish,
};

void stepped_start(struct stepped *stepped, const struct sl_actor *actor, const char *shm_dir,
                   const char *const *settings, bool init)
{
    struct sl_error why = {0};
    *stepped = (struct stepped){.actor = actor, .wake_ns = SL_NEVER_NS};
    ck_assert_int_eq(sl_config_create(&stepped->config, &why), SL_OK);
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i += 2) {
        ck_assert_msg(sl_config_set(stepped->config, settings[i], settings[i + 1], "test", &why) ==
                          SL_OK,
                      "%s", why.text);
    }
    strncpy(stepped->paths.shm_dir, shm_dir, sizeof(stepped->paths.shm_dir) - 1);
    ck_assert_int_eq(sl_codec_create(SL_MIB * 64, &stepped->codec, &why), SL_OK);
    stepped->env = (struct sl_env){
        .ops = &stepped_ops,
        .name = actor->role,
        .now_ns = 1000 * SL_NS_PER_S,
        .config = stepped->config,
        .paths = &stepped->paths,
        .next_seq = 1,
    };
    stepped->state = calloc(1, actor->state_bytes);
    if (init) {
        ck_assert_msg(actor->init(stepped->state, &stepped->env, &why) == SL_OK, "%s", why.text);
    }
}

void stepped_end(struct stepped *stepped)
{
    stepped->actor->fini(stepped->state);
    free(stepped->state);
    for (uint32_t i = 0; i < stepped->sent_count; i++) {
        free(stepped->sent[i].bytes);
    }
    sl_codec_destroy(&stepped->codec);
    sl_config_destroy(&stepped->config);
}

sl_err stepped_give(struct stepped *stepped, const char *sender, struct sl_msg *msg)
{
    static uint64_t next_seq = 100;
    msg->sender = sl_text_of(sender);
    msg->received_ns = stepped->env.now_ns;
    if (msg->seq == 0) {
        msg->seq = ++next_seq;
    }
    if (msg->budget_ns == 0) {
        msg->budget_ns = 2 * SL_NS_PER_S;
    }
    return stepped->actor->handle(stepped->state, msg);
}

bool stepped_take(struct stepped *stepped, struct sl_msg *out, char to[32])
{
    if (stepped->taken_count == stepped->sent_count) {
        return false;
    }
    const struct stepped_frame *frame = &stepped->sent[stepped->taken_count++];
    struct sl_error why = {0};
    ck_assert_msg(sl_codec_decode(stepped->codec, frame->bytes, frame->length_bytes, out, &why) ==
                      SL_OK,
                  "%s", why.text);
    ck_assert(frame->reply == SL_MSG_IS_REPLY(out->type));
    if (to != NULL) {
        memcpy(to, frame->to, 32);
    }
    return true;
}

uint32_t stepped_run(struct stepped *stepped, uint32_t limit)
{
    uint32_t ticks = 0;
    while (ticks < limit && stepped->wake_ns <= stepped->env.now_ns) {
        stepped->wake_ns = SL_NEVER_NS;
        ck_assert_int_eq(stepped->actor->tick(stepped->state, stepped->env.now_ns), SL_OK);
        ticks++;
    }
    return ticks;
}

void stepped_advance(struct stepped *stepped, uint64_t ns)
{
    stepped->env.now_ns += ns;
    (void)stepped_run(stepped, 1000);
}

void stepped_died(struct stepped *stepped, struct sl_proc_id proc)
{
    struct sl_msg msg = {.type = SL_MSG_LOCAL_DIED};
    msg.body.local_died.pid = proc.pid;
    msg.body.local_died.start_time = proc.start_time;
    ck_assert_int_eq(stepped_give(stepped, "self", &msg), SL_OK);
}
