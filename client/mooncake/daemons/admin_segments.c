/* client/mooncake/daemons/admin_segments.c - segments: what processes contribute to the node. */
#include "client/mooncake/daemons/admin.h"
#include "runtime/sl_metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGES_NAME_BYTES 1100

/* A counter of the registrar's page; 0: there is none. */
static uint64_t registrar_metric(const struct mc_admin *admin, const char *wanted)
{
    char path[PAGES_NAME_BYTES];
    char name[SL_METRIC_NAME_BYTES];
    uint64_t value = 0;
    uint64_t found = 0;
    struct sl_metrics_view *view = NULL;
    (void)snprintf(path, sizeof path, "%s/metrics.registrar", admin->paths.shm_dir);
    if (sl_metrics_view_open(path, &view, NULL) != SL_OK) {
        return 0;
    }
    for (uint32_t i = 0; sl_metrics_view_metric(view, i, name, &value); i++) {
        if (strcmp(name, wanted) == 0) {
            found = value;
        }
    }
    sl_metrics_view_close(&view);
    return found;
}

bool mc_segments(struct mc_admin *admin, struct sl_contribution_info *infos, uint32_t *count,
                 struct mc_answer *answer)
{
    struct sl_error why = {0};
    struct sl_client *client = mc_admin_client(admin, answer);
    if (client == NULL) {
        return false;
    }
    *count = 0;
    sl_err err = sl_contributions(client, infos, count, MC_CALL_NS, &why);
    mc_admin_client_return(admin);
    mc_admin_client_judge(admin, err);
    if (err == SL_ERR_UNSUPPORTED) {
        infos[0] =
            (struct sl_contribution_info){.length_bytes = registrar_metric(admin, "usable_bytes"),
                                          .used_bytes = registrar_metric(admin, "used_bytes"),
                                          .value_count = registrar_metric(admin, "object_count")};
        (void)snprintf(infos[0].name, sizeof infos[0].name, "%s", admin->instance);
        *count = 1;
        err = SL_OK;
    }
    if (err != SL_OK) {
        mc_answer_failed(answer, &why);
    }
    return err == SL_OK;
}

/* All of them, to be freed. NULL: the answer says why. */
static struct sl_contribution_info *segments_get(struct mc_admin *admin, uint32_t *count,
                                                 struct mc_answer *answer)
{
    struct sl_contribution_info *infos = calloc(SL_CONTRIBUTIONS_MAX, sizeof *infos);
    if (infos == NULL) {
        mc_answer_text(answer, 500, "out of memory\n");
        return NULL;
    }
    if (!mc_segments(admin, infos, count, answer)) {
        free(infos);
        return NULL;
    }
    return infos;
}

void mc_get_all_segments(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    uint32_t count = 0;
    (void)request;
    SL_AUTO(free) struct sl_contribution_info *infos = segments_get(context, &count, answer);
    if (infos == NULL) {
        return;
    }
    char text[SL_CONTRIBUTIONS_MAX * (sizeof infos->name + 1) + 1];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\n", infos[i].name);
    }
    mc_answer_text(answer, 200, "%s", text);
}

static double percent_of(const struct sl_contribution_info *info)
{
    return info->length_bytes == 0 ? 0.0
                                   : 100.0 * (double)info->used_bytes / (double)info->length_bytes;
}

static json_t *detail_json(const struct sl_contribution_info *info)
{
    json_t *ids = json_array();
    (void)json_array_append_new(ids, json_integer((json_int_t)info->number));
    return json_pack("{s:o, s:o, s:i, s:I, s:o, s:s, s:s, s:I, s:I, s:f, s:I, s:o, s:i}", "name",
                     mc_json_text(info->name, strlen(info->name)), "ids", ids, "base", 0, "size",
                     (json_int_t)info->length_bytes, "endpoint",
                     mc_json_text(info->name, strlen(info->name)), "protocol", "shm", "status",
                     "OK", "used", (json_int_t)info->used_bytes, "capacity",
                     (json_int_t)info->length_bytes, "usage_percent", percent_of(info), "values",
                     (json_int_t)info->value_count, "process",
                     mc_json_text(info->process, strlen(info->process)), "pid", (int)info->pid);
}

void mc_get_segments_detail(void *context, const struct mc_request *request,
                            struct mc_answer *answer)
{
    uint32_t count = 0;
    (void)request;
    SL_AUTO(free) struct sl_contribution_info *infos = segments_get(context, &count, answer);
    if (infos == NULL) {
        return;
    }
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, detail_json(&infos[i]));
    }
    mc_answer_json(answer, 200, json_pack("{s:b, s:o}", "success", 1, "segments", list));
}

static const struct sl_contribution_info *segment_find(const struct sl_contribution_info *infos,
                                                       uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(infos[i].name, name) == 0) {
            return &infos[i];
        }
    }
    return NULL;
}

void mc_query_segment(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    uint32_t count = 0;
    size_t length = 0;
    SL_AUTO(free) char *name = NULL;
    if (!mc_argument(request, "segment", &name, &length, answer)) {
        return;
    }
    SL_AUTO(free) struct sl_contribution_info *infos = segments_get(context, &count, answer);
    const struct sl_contribution_info *info =
        infos != NULL ? segment_find(infos, count, name) : NULL;
    if (info != NULL) {
        mc_answer_text(answer, 200, "%s\nused_bytes: %" PRIu64 "\ncapacity_bytes: %" PRIu64 "\n",
                       info->name, info->used_bytes, info->length_bytes);
    } else if (infos != NULL) {
        mc_answer_text(answer, 404, "no segment has this name\n");
    }
}

void mc_segments_status(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    uint32_t count = 0;
    size_t length = 0;
    SL_AUTO(free) char *name = NULL;
    bool one = mc_request_raw(request, "segment") != NULL;
    if (one && !mc_argument(request, "segment", &name, &length, answer)) {
        return;
    }
    SL_AUTO(free) struct sl_contribution_info *infos = segments_get(context, &count, answer);
    if (infos == NULL) {
        return;
    }
    if (one && segment_find(infos, count, name) == NULL) {
        mc_answer_text(answer, 404, "no segment has this name\n");
        return;
    }
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        if (!one || strcmp(infos[i].name, name) == 0) {
            (void)json_array_append_new(
                list,
                json_pack("{s:o, s:s}", "name", mc_json_text(infos[i].name, strlen(infos[i].name)),
                          "status", "OK"));
        }
    }
    mc_answer_json(answer, 200, json_pack("{s:b, s:o}", "success", 1, "segments", list));
}
