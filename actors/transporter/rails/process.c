/* actors/transporter/rails/process.c - lives of a rail's process: greetings, orders in turn, the end
 * of the door. */
#include "actors/transporter/rails/process_internal.h"

#include "ipc/sl_rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOOR     "transporter.0"
#define HELLO_NS (50 * SL_NS_PER_MS)
#define STATS_NS (200 * SL_NS_PER_MS)

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(tr_process, metric.read_bytes, "read_bytes"),
    SL_METRIC_ROW(tr_process, metric.written_bytes, "written_bytes"),
    SL_METRIC_ROW(tr_process, metric.served_bytes, "served_bytes"),
    SL_METRIC_ROW(tr_process, metric.taken_bytes, "taken_bytes"),
    SL_METRIC_ROW(tr_process, metric.transfers, "transfers_out"),
    SL_METRIC_ROW(tr_process, metric.links_up, "links_up"),
    SL_METRIC_ROW(tr_process, metric.links_lost, "links_lost"),
    SL_METRIC_ROW(tr_process, metric.refused, "refused"),
    SL_METRIC_ROW(tr_process, metric.lives, "rail_lives"),
};

static void metrics_show(struct tr_process *process, const struct sl_fabric_stats *stats)
{
    const struct {
        sl_metric metric;
        uint64_t value;
    } shown[] = {
        {process->metric.read_bytes, stats->read_bytes},
        {process->metric.written_bytes, stats->written_bytes},
        {process->metric.served_bytes, stats->served_read_bytes},
        {process->metric.taken_bytes, stats->served_write_bytes},
        {process->metric.transfers, process->posts_out},
        {process->metric.links_up, process->links_up},
        {process->metric.links_lost, stats->links_lost},
        {process->metric.refused, stats->refused},
    };
    for (size_t i = 0; i < SL_COUNT(shown); i++) {
        sl_metric_set(process->env->metrics, shown[i].metric, shown[i].value);
    }
}

/* ---- tables ---- */

static sl_err table_make(struct process_table *table, uint32_t count, struct sl_error *why)
{
    table->rows = calloc(count, sizeof(*table->rows));
    table->door_of = calloc(count, sizeof(*table->door_of));
    table->count = count;
    return table->rows == NULL || table->door_of == NULL
               ? sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a table of %u", count)
               : SL_OK;
}

static void table_clear(struct process_table *table)
{
    for (uint32_t i = 0; table->rows != NULL && i < table->count; i++) {
        process_key_drop(&table->rows[i]);
        sl_cover_fini(&table->rows[i].shut);
        table->rows[i] = (struct process_row){0};
    }
}

static void table_free(struct process_table *table)
{
    table_clear(table);
    free(table->rows);
    free(table->door_of);
}

static sl_err tables_make(struct tr_process *process, struct sl_error *why)
{
    const struct sl_fabric_options *options = &process->options;
    const struct {
        struct process_table *table;
        uint32_t count;
    } tables[] = {{&process->memories, options->memories_max},
                  {&process->peers, options->peers_max},
                  {&process->grants, options->grants_max},
                  {&process->keys, options->keys_max}};
    process->posts = calloc(options->transfers_max, sizeof(*process->posts));
    uint32_t places = SL_MAX(options->places_max, SL_FABRIC_PLACES_MAX);
    process->places = calloc(places, sizeof(*process->places));
    process->places_max = places;
    sl_err err = process->posts != NULL && process->places != NULL
                     ? SL_OK
                     : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for transfers");
    process->handed = calloc(options->memories_max, sizeof(*process->handed));
    if (process->handed == NULL) {
        err = sl_fail(why, SL_ERR_NO_MEMORY, "no memory for descriptors");
    }
    for (size_t i = 0; i < SL_COUNT(tables) && err == SL_OK; i++) {
        err = table_make(tables[i].table, tables[i].count, why);
    }
    return err;
}

/* ---- lives ---- */

/* From here on nothing that a door ordered lands. */
static void fabric_close(struct tr_process *process)
{
    if (process->fabric != NULL) {
        if (process->env->ops->unwatch_fd != NULL) {
            process->env->ops->unwatch_fd(process->env, sl_fabric_fd(process->fabric));
        }
        sl_fabric_close(&process->fabric);
    }
    for (uint32_t i = 0; i < PROCESS_ARENAS_MAX; i++) {
        sl_arena_close(&process->arenas[i]);
    }
    process_handed_clear(process);
    if (process->noted) {
        sl_rail_note_remove(process->env, process->index);
        process->noted = false;
    }
}

static sl_err life_begin(struct tr_process *process, struct sl_error *why)
{
    struct sl_env *env = process->env;
    process->life = SL_MAX(env->ops->random_u64(env), UINT64_C(1));
    process->opened = process->broken = false;
    process->posts_out = process->links_up = 0;
    process->shut_asked = process->shut_told = 0;
    sl_metric_add(env->metrics, process->metric.lives, 1);
    process->memories_leaving = process->gathered = process->gathered_places = 0;
    process->hello_due_ns = 0;
    process->told = (struct sl_fabric_stats){0};
    tr_stream_begin(&process->stream, process->life);
    table_clear(&process->memories);
    table_clear(&process->peers);
    table_clear(&process->grants);
    table_clear(&process->keys);
    memset(process->posts, 0, process->options.transfers_max * sizeof(*process->posts));
    sl_err err = sl_fabric_open(&process->options, &process->fabric, why);
    if (err == SL_OK && env->ops->watch_fd != NULL) { /* else a test turns it */
        err = env->ops->watch_fd(env, sl_fabric_fd(process->fabric), why);
    }
    env->ops->wake_at(env, 0);
    return err;
}

static sl_err life_end(struct tr_process *process, const char *reason)
{
    struct sl_error why = {0};
    sl_log_write(process->env->log, SL_LOG_WARN, 0, "rail %u begins anew: %s", process->index,
                 reason);
    if (process->opened) {
        process->env->ops->unwatch(process->env, process->door);
    }
    fabric_close(process);
    sl_err err = life_begin(process, &why);
    if (err != SL_OK) {
        sl_log_write(process->env->log, SL_LOG_ERROR, 0, "rail %u does not open again: %s",
                     process->index, why.text);
        return SL_ERR_INTERNAL;
    }
    return SL_OK;
}

void process_break(struct tr_process *process, const char *reason)
{
    if (!process->broken) {
        sl_log_write(process->env->log, SL_LOG_ERROR, 0, "the door's orders: %s", reason);
    }
    process->broken = true;
}

sl_err tr_process_open(struct sl_env *env, uint32_t index, const struct sl_fabric_options *options,
                       struct tr_process **out, struct sl_error *why)
{
    struct tr_process *process = calloc(1, sizeof(*process));
    bool tcp = strcmp(options->kind, "tcp") == 0;
    if (process == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a rail");
    }
    *out = process; /* closed by its owner, also half open */
    process->env = env;
    process->index = index;
    sl_metrics_define(env->metrics, metric_rows, SL_COUNT(metric_rows), process);
    process->options = *options;
    uint32_t count = sl_fabric_rails_count(options->kind, options->address, options->nic);
    if (!sl_fabric_rail_entry(tcp ? options->address : options->nic, index, process->entry,
                              sizeof(process->entry))) {
        return sl_fail(why, SL_ERR_CONFIG, "the list has no entry %u", index);
    }
    *(tcp ? &process->options.address : &process->options.nic) = process->entry;
    process->options.movers = sl_fabric_movers_of_rail(options->movers, count);
    process->options.events = process_events(process);
    sl_err err = tr_stream_init(&process->stream, env, DOOR, why);
    err = err == SL_OK ? tables_make(process, why) : err;
    err = err == SL_OK ? life_begin(process, why) : err;
    if (err == SL_OK) {
        sl_log_write(env->log, SL_LOG_INFO, 0, "rail %u: %s", index,
                     sl_fabric_about(process->fabric));
    }
    return err;
}

void tr_process_close(struct tr_process **at)
{
    struct tr_process *process = *at;
    if (process == NULL) {
        return;
    }
    fabric_close(process);
    tr_stream_fini(&process->stream);
    table_free(&process->memories);
    table_free(&process->peers);
    table_free(&process->grants);
    table_free(&process->keys);
    free(process->posts);
    free(process->places);
    free(process->handed);
    free(process);
    *at = NULL;
}

/* ---- what the door hears ---- */

void process_news(struct tr_process *process, enum sl_rail_news kind,
                  struct sl_body_rail_news *news)
{
    struct sl_msg msg = {.type = SL_MSG_RAIL_NEWS};
    news->kind = kind;
    msg.body.rail_news = *news;
    if (process->opened && tr_stream_send(&process->stream, &msg) != SL_OK) {
        process_break(process, "the door takes no news any more");
    }
}

static void hello_send(struct tr_process *process, uint64_t now_ns)
{
    struct sl_env *env = process->env;
    struct sl_msg msg = {.type = SL_MSG_RAIL_HELLO};
    if (now_ns < process->hello_due_ns) {
        env->ops->wake_at(env, process->hello_due_ns);
        return;
    }
    msg.body.rail_hello = (struct sl_body_rail_hello){
        .rail = process->index,
        .life = process->life,
        .pid = env->self.pid,
        .start_time = env->self.start_time,
        .entry = sl_text_of(process->entry),
        .about = sl_text_of(sl_fabric_about(process->fabric)),
        .region_bytes_max = sl_fabric_region_bytes_max(process->fabric),
    };
    process->hello_due_ns = now_ns + HELLO_NS;
    if (sl_send(env, DOOR, &msg, NULL) != SL_OK) { /* no connection yet, or no door */
        process->hello_due_ns = now_ns + HELLO_NS / 5;
    }
    env->ops->wake_at(env, process->hello_due_ns);
}

static void stats_send(struct tr_process *process, uint64_t now_ns)
{
    struct sl_fabric_stats stats;
    uint64_t numbers[sizeof(stats) / sizeof(uint64_t)];
    sl_fabric_stats(process->fabric, &stats);
    metrics_show(process, &stats);
    if (memcmp(&stats, &process->told, sizeof(stats)) == 0) {
        return;
    }
    if (now_ns < process->stats_due_ns) {
        process->env->ops->wake_at(process->env, process->stats_due_ns);
        return;
    }
    memcpy(numbers, &stats, sizeof(numbers));
    struct sl_body_rail_news news = {.stats = {.at = numbers, .count = SL_COUNT(numbers)}};
    process->told = stats;
    process->stats_due_ns = now_ns + STATS_NS;
    process_news(process, RAIL_STATS, &news);
}

/* ---- messages ---- */

/* The first of a life says who orders; the door is watched from then on. The note comes before the
 * look whether it lives: what finds no note after a door's death finds nothing of that door here. */
static void open_by(struct tr_process *process, const struct sl_body_rail_order *order)
{
    struct sl_env *env = process->env;
    struct sl_error why = {0};
    struct sl_proc_id door = {.pid = (uint32_t)order->pid, .start_time = order->start_time};
    process->door = door;
    process->opened = true;
    process->noted = sl_rail_note(env, process->index, &why) == SL_OK;
    if (!process->noted) {
        process_break(process, why.text);
    } else if (env->ops->watch(env, door, 0) != SL_OK || !env->ops->alive(env, door)) {
        process_break(process, "of a door that is gone");
    }
}

static void ordered(struct tr_process *process, const struct sl_msg *msg)
{
    bool is_post = msg->type == SL_MSG_RAIL_POST;
    bool opens = !is_post && msg->body.rail_order.kind == RAIL_OPEN;
    enum tr_heard heard = tr_stream_hear(&process->stream, msg);
    if (heard == TR_HEARD_OLD) {
        return; /* of an earlier life */
    }
    if (heard == TR_HEARD_GAP || opens == process->opened || (process->gathered > 0 && !is_post)) {
        process_break(process, heard == TR_HEARD_GAP ? "some were lost" : "out of turn");
    } else if (opens) {
        open_by(process, &msg->body.rail_order);
    } else if (is_post) {
        process_post(process, msg);
    } else {
        process_order(process, &msg->body.rail_order);
    }
    process->env->ops->wake_at(process->env, 0); /* the fabric's turn comes behind all orders */
}

/* A registrar asks when claims have ended whose writer, the door, is dead, or when an engine ends. A
 * living door answers for its rails itself. */
static sl_err fence(struct tr_process *process, const struct sl_msg *msg)
{
    sl_err err = SL_OK;
    if (process->opened && !process->env->ops->alive(process->env, process->door)) {
        err = life_end(process, "asked whether it has ended, and the door is dead");
    }
    if (err == SL_OK) {
        sl_reply_code(process->env, msg, SL_OK, NULL);
    }
    return err;
}

static bool is_of_door(const struct tr_process *process, const struct sl_msg *msg)
{
    return strcmp(msg->sender.at, process->stream.to) == 0;
}

sl_err tr_process_handle(struct tr_process *process, const struct sl_msg *msg)
{
    const struct sl_body_local_died *died = &msg->body.local_died;
    switch (msg->type) {
    case SL_MSG_RAIL_ORDER:
    case SL_MSG_RAIL_POST:
        if (is_of_door(process, msg)) {
            ordered(process, msg);
        }
        break;
    case SL_MSG_FENCE:
    case SL_MSG_ENGINE_OVER:
        return fence(process, msg);
    case SL_MSG_HELLO_REPLY:
        process->known = process->known || msg->code == SL_OK;
        process->env->ops->wake_at(process->env, 0);
        break;
    case SL_MSG_RAIL_HELLO_REPLY:
        if (msg->code != SL_OK && msg->code != SL_ERR_BUSY) {
            sl_log_write(process->env->log, SL_LOG_WARN, 0, "the door does not take rail %u: %s",
                         process->index, msg->text.length > 0 ? msg->text.at : "");
            process->hello_due_ns = process->env->now_ns + SL_NS_PER_S;
        }
        break;
    case SL_MSG_LOCAL_DIED:
        if (process->opened && died->pid == process->door.pid &&
            died->start_time == process->door.start_time) {
            return life_end(process, "the door is dead");
        }
        break;
    default:
        if (!SL_MSG_IS_REPLY(msg->type) && msg->type < SL_MSG_LOCAL_IO) {
            sl_reply_code(process->env, msg, SL_ERR_UNSUPPORTED, NULL);
        }
        break;
    }
    return process->broken ? life_end(process, "its orders cannot be followed") : SL_OK;
}

sl_err tr_process_tick(struct tr_process *process, uint64_t now_ns)
{
    struct sl_env *env = process->env;
    tr_stream_flush(&process->stream);
    process_memories_step(process);
    sl_fabric_step(process->fabric, now_ns);
    process_shut_step(process);
    env->ops->wake_at(env, sl_fabric_wake_at(process->fabric));
    if (process->opened) {
        stats_send(process, now_ns);
    } else if (process->known) {
        hello_send(process, now_ns);
    }
    return process->broken ? life_end(process, "its orders cannot be followed") : SL_OK;
}
