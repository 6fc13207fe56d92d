/* client/tools/ctl/status_ready.c - sluicectl status --ready: decides whether a node serves, by its
 * actors' metrics pages and an answer of its registrar. */
#include "client/tools/ctl/status_ready.h"
#include "runtime/base/sl_clock.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define READY_PAUSE_NS (10 * SL_NS_PER_MS)
#define NAMES_MAX      512u

struct actor {
    char name[SL_METRIC_NAME_BYTES];
    char reason[SL_METRICS_REASON_BYTES];
    bool serves, degraded;
};

struct ready {
    const struct ctl *ctl;
    bool disks_read; /* the registrar knows the contents of each disk */
    bool lives;      /* the supervisor or another process of the node lives */
    bool supervised; /* actors[] are those of the supervisor; else those that have pages */
    uint32_t count;
    struct actor actors[NAMES_MAX];
    struct sl_error why; /* why the registrar does not answer; code SL_OK: it does */
};

static struct actor *actor_find(struct ready *self, const char *name, bool adds)
{
    for (uint32_t i = 0; i < self->count; i++) {
        if (strcmp(self->actors[i].name, name) == 0) {
            return &self->actors[i];
        }
    }
    if (!adds || self->count == NAMES_MAX) {
        return NULL;
    }
    struct actor *actor = &self->actors[self->count++];
    *actor = (struct actor){0};
    (void)snprintf(actor->name, sizeof(actor->name), "%s", name);
    return actor;
}

/* Reads the supervisor's rows, "NAME PID STATE ...". */
static void names_read(struct ready *self)
{
    char path[1400], line[256], name[SL_METRIC_NAME_BYTES];
    (void)snprintf(path, sizeof(path), "%s/supervisor.state", self->ctl->paths.runtime_dir);
    SL_AUTO(fclose) FILE *file = fopen(path, "re");
    self->count = 0;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(line, " \n"), line);
        (void)(name[0] != '\0' && actor_find(self, name, true) != NULL);
    }
    self->supervised = self->count > 0;
}

static bool registrar_knows_disks(const struct sl_metrics_view *view,
                                  const struct sl_metrics_summary *summary)
{
    char name[SL_METRIC_NAME_BYTES];
    uint64_t value = 0;
    for (uint32_t i = 0; i < summary->metric_count; i++) {
        if (sl_metrics_view_metric(view, i, name, &value) && strcmp(name, "disk_ready") == 0) {
            return value != 0;
        }
    }
    return false;
}

static bool page_look(void *context, struct sl_metrics_view *view)
{
    struct ready *self = context;
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    if (strncmp(summary.actor, "client.", 7) == 0) {
        return true;
    }
    if (strcmp(summary.actor, "registrar") == 0) {
        self->disks_read = registrar_knows_disks(view, &summary);
    }
    self->lives = self->lives || sl_proc_alive(summary.proc);
    struct actor *actor = actor_find(self, summary.actor, !self->supervised);
    if (actor != NULL) {
        actor->degraded = summary.health == SL_HEALTH_DEGRADED;
        (void)snprintf(actor->reason, sizeof(actor->reason), "%s", summary.reason);
        actor->serves = (actor->degraded || summary.health == SL_HEALTH_READY) &&
                        sl_proc_alive(summary.proc) && !status_is_stuck(&summary);
    }
    return true;
}

/* Whether the supervisor lives. A starting one has written supervisor.lock, but not yet
 * supervisor.pid. */
static bool supervisor_lives(const struct ctl *ctl)
{
    static const char *const files[] = {"pid", "lock"};
    char path[1400];
    struct sl_proc_id proc;
    for (size_t i = 0; i < SL_COUNT(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/supervisor.%s", ctl->paths.runtime_dir, files[i]);
        if (sl_proc_id_read(path, &proc, NULL) == SL_OK && sl_proc_alive(proc)) {
            return true;
        }
    }
    return false;
}

static bool is_disk(const struct actor *actor)
{
    return strncmp(actor->name, "tierer.", 7) == 0;
}

static bool has_disks(const struct ready *self)
{
    for (uint32_t i = 0; i < self->count; i++) {
        if (is_disk(&self->actors[i])) {
            return true;
        }
    }
    return false;
}

/* The rule of sluice-node: a node serves without some of its disks, and with degraded actors. */
static bool actors_serve(struct ready *self)
{
    uint32_t disks = 0;
    uint32_t disks_away = 0;
    bool others = true;
    names_read(self);
    self->lives = supervisor_lives(self->ctl);
    (void)ctl_pages(self->ctl, page_look, self);
    for (uint32_t i = 0; i < self->count; i++) {
        const struct actor *actor = &self->actors[i];
        disks += is_disk(actor) ? 1 : 0;
        disks_away += is_disk(actor) && !actor->serves ? 1 : 0;
        others = others && (actor->serves || is_disk(actor));
    }
    return others && actor_find(self, "registrar", false) != NULL &&
           (disks_away == 0 || disks_away < disks);
}

/* Opens a client, which only the registrar answers. A registrar that refuses because it has no room
 * for another client has answered: it serves attached clients, so a probe must not end the node. */
static bool registrar_answers(struct ready *self, uint64_t deadline_ns)
{
    struct sl_client *client = NULL;
    uint64_t now_ns = sl_clock_monotonic_ns();
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .config = self->ctl->config_file,
                                              .settings = self->ctl->settings,
                                              .timeout_ns =
                                                  deadline_ns > now_ns ? deadline_ns - now_ns : 1};
    self->why = (struct sl_error){0};
    sl_err err = sl_client_open(&options, &client, &self->why);
    sl_client_close(&client);
    return err == SL_OK || err == SL_ERR_LIMIT || err == SL_ERR_NO_SPACE;
}

static bool is_named(const struct actor *actor, bool degraded)
{
    return degraded ? actor->serves && actor->degraded : !actor->serves;
}

/* Names of actors that serve degraded, or of those that do not serve. */
static json_t *names_json(const struct ready *self, bool degraded)
{
    json_t *names = json_array();
    for (uint32_t i = 0; i < self->count; i++) {
        if (is_named(&self->actors[i], degraded)) {
            (void)json_array_append_new(names, json_string(self->actors[i].name));
        }
    }
    return names;
}

static void names_print(const struct ready *self, const char *what, bool degraded)
{
    for (uint32_t i = 0; i < self->count; i++) {
        const struct actor *actor = &self->actors[i];
        if (is_named(actor, degraded)) {
            (void)printf("%s%s", what, actor->name);
            what = ", ";
            (void)(degraded && actor->reason[0] != '\0' && printf(" (%s)", actor->reason));
        }
    }
}

static bool is_ready(struct ready *self, bool disks)
{
    return actors_serve(self) && (!disks || self->disks_read || !has_disks(self));
}

int status_ready(const struct ctl *ctl, bool disks, uint64_t deadline_ns)
{
    static struct ready self; /* too large for a stack */
    const struct timespec pause = {.tv_nsec = (long)READY_PAUSE_NS};
    self = (struct ready){.ctl = ctl};
    bool serve = is_ready(&self, disks);
    while (!serve && self.lives && sl_clock_monotonic_ns() < deadline_ns) {
        (void)nanosleep(&pause, NULL);
        serve = is_ready(&self, disks);
    }
    bool ready = serve && registrar_answers(&self, deadline_ns);
    if (ctl->json) {
        ctl_print_json(json_pack("{s:s, s:b, s:b, s:o, s:o, s:s?}", "instance",
                                 sl_config_text(ctl->config, SL_SET_instance), "ready", ready,
                                 "disks_read", self.disks_read || !has_disks(&self), "missing",
                                 names_json(&self, false), "degraded", names_json(&self, true),
                                 "why", self.why.text[0] != '\0' ? self.why.text : NULL));
        return ready ? CTL_SUCCESS : CTL_NO;
    }
    (void)printf("%s", ready ? "ready" : "not ready");
    names_print(&self, "; missing: ", false);
    names_print(&self, "; degraded: ", true);
    if (disks && !self.disks_read && has_disks(&self)) {
        (void)printf("; not all disks have been read");
    }
    if (!self.lives) {
        (void)printf("; no node runs under the name '%s'",
                     sl_config_text(ctl->config, SL_SET_instance));
    }
    (void)printf("%s%s\n", self.why.text[0] != '\0' ? "; " : "", self.why.text);
    return ready ? CTL_SUCCESS : CTL_NO;
}
