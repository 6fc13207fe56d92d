/* client/mooncake/python/config.c - the type ReplicateConfig, in both of its generations. */
#include "client/mooncake/python/internal.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

struct mc_config {
    PyObject_HEAD uint64_t replica_num, nof_replica_num, dfs_replica_num;
    PyObject *soft_pin_action, *data_type; /* members of their enums */
    uint64_t soft_pin_ttl_ms;
    bool soft_pin_ttl_given, with_hard_pin, prefer_alloc_in_same_node;
    PyObject *preferred_segments, *preferred_nof_segments; /* tuples of str */
    PyObject *preferred_segment;                           /* str */
    PyObject *group_ids;                                   /* tuple of str, or None */
};

static struct mc_config *config_of(PyObject *object)
{
    return (struct mc_config *)(void *)object;
}

static long enum_number(PyObject *member)
{
    PyObject *value = PyNumber_Index(member);
    long number = value == NULL ? -1 : PyLong_AsLong(value);
    Py_XDECREF(value);
    return number;
}

static PyObject *enum_member(PyObject *type, const char *name)
{
    return PyObject_GetAttrString(type, name);
}

static PyObject *config_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    if (PyTuple_Size(args) != 0 || (names != NULL && PyDict_Size(names) != 0)) {
        PyErr_SetString(PyExc_TypeError,
                        "__init__(): incompatible constructor arguments. The following argument "
                        "types are supported:\n    1. mooncake.store.ReplicateConfig()");
        return NULL;
    }
    struct mc_state *state = PyType_GetModuleState(type);
    PyObject *object = sl_glue_new(type);
    if (object == NULL) {
        return NULL;
    }
    struct mc_config *self = config_of(object);
    self->replica_num = 1;
    self->soft_pin_action = enum_member(state->soft_pin_action, "PRESERVE");
    self->data_type = enum_member(state->data_type, "UNKNOWN");
    self->preferred_segments = PyTuple_New(0);
    self->preferred_nof_segments = PyTuple_New(0);
    self->preferred_segment = PyUnicode_FromString("");
    self->group_ids = Py_NewRef(Py_None);
    if (self->soft_pin_action == NULL || self->data_type == NULL ||
        self->preferred_segments == NULL || self->preferred_nof_segments == NULL ||
        self->preferred_segment == NULL) {
        Py_CLEAR(object);
    }
    return object;
}

static void config_dealloc(PyObject *object)
{
    struct mc_config *self = config_of(object);
    Py_CLEAR(self->soft_pin_action);
    Py_CLEAR(self->data_type);
    Py_CLEAR(self->preferred_segments);
    Py_CLEAR(self->preferred_nof_segments);
    Py_CLEAR(self->preferred_segment);
    Py_CLEAR(self->group_ids);
    sl_glue_free(object);
}

/* ---- attributes ---- */

static int refuse(const char *name, const char *wanted)
{
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError,
                 "ReplicateConfig.%s: (self: mooncake.store.ReplicateConfig, "
                 "arg0: %s) -> None",
                 name, wanted);
    return -1;
}

/* An attribute's place in the struct, which is what the getters and setters are given. */
struct field {
    const char *name;
    size_t offset;
};
#define FIELD(name)                             \
    {                                           \
#name, offsetof(struct mc_config, name) \
    }
static const struct field field_replica_num = FIELD(replica_num);
static const struct field field_nof_replica_num = FIELD(nof_replica_num);
static const struct field field_dfs_replica_num = FIELD(dfs_replica_num);
static const struct field field_with_hard_pin = FIELD(with_hard_pin);
static const struct field field_same_node = FIELD(prefer_alloc_in_same_node);
static const struct field field_preferred_segments = FIELD(preferred_segments);
static const struct field field_preferred_nof_segments = FIELD(preferred_nof_segments);

static void *field_at(PyObject *object, const struct field *field)
{
    return (char *)object + field->offset;
}

static PyObject *number_get(PyObject *object, void *closure)
{
    const uint64_t *at = field_at(object, closure);
    return PyLong_FromUnsignedLongLong(*at);
}

static int number_set(PyObject *object, PyObject *value, void *closure)
{
    const struct field *field = closure;
    uint64_t number = 0;
    if (value == NULL || !sl_glue_u64(value, &number)) {
        return refuse(field->name, "int");
    }
    uint64_t *at = field_at(object, field);
    *at = number;
    return 0;
}

static PyObject *flag_get(PyObject *object, void *closure)
{
    const bool *at = field_at(object, closure);
    return PyBool_FromLong(*at);
}

static int flag_set(PyObject *object, PyObject *value, void *closure)
{
    const struct field *field = closure;
    if (value != Py_True && value != Py_False) {
        return refuse(field->name, "bool");
    }
    bool *at = field_at(object, field);
    *at = value == Py_True;
    return 0;
}

/* Gives a tuple of str, or NULL. */
static PyObject *texts_of(PyObject *value)
{
    PyObject *list = value == NULL ? NULL : mc_list_take(value);
    Py_ssize_t count = list == NULL ? -1 : PyList_Size(list);
    struct sl_object_key text;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!mc_string_take(PyList_GetItem(list, i), &text)) {
            Py_CLEAR(list);
            break;
        }
    }
    PyObject *texts = list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return texts;
}

static PyObject *texts_get(PyObject *object, void *closure)
{
    PyObject *const *at = field_at(object, closure);
    return PySequence_List(*at);
}

static void replace(PyObject **place, PyObject *value)
{
    PyObject *old = *place;
    *place = value;
    Py_XDECREF(old);
}

static int texts_set(PyObject *object, PyObject *value, void *closure)
{
    const struct field *field = closure;
    PyObject *texts = texts_of(value);
    if (texts == NULL) {
        return refuse(field->name, "list[str]");
    }
    replace(field_at(object, field), texts);
    return 0;
}

static PyObject *preferred_segment_get(PyObject *object, void *none)
{
    (void)none;
    return Py_NewRef(config_of(object)->preferred_segment);
}

static int preferred_segment_set(PyObject *object, PyObject *value, void *none)
{
    struct sl_object_key text;
    (void)none;
    if (value == NULL || !mc_string_take(value, &text)) {
        return refuse("preferred_segment", "str");
    }
    replace(&config_of(object)->preferred_segment, Py_NewRef(value));
    return 0;
}

static PyObject *group_ids_get(PyObject *object, void *none)
{
    PyObject *groups = config_of(object)->group_ids;
    (void)none;
    return groups == Py_None ? Py_NewRef(groups) : PySequence_List(groups);
}

static int group_ids_set(PyObject *object, PyObject *value, void *none)
{
    (void)none;
    PyObject *groups = value == Py_None ? Py_NewRef(value) : texts_of(value);
    if (groups == NULL) {
        return refuse("group_ids", "list[str] | None");
    }
    replace(&config_of(object)->group_ids, groups);
    return 0;
}

static PyObject *soft_pin_action_get(PyObject *object, void *none)
{
    (void)none;
    return Py_NewRef(config_of(object)->soft_pin_action);
}

/* A member of the enum class, and nothing that only has its number. */
static bool is_member(PyObject *value, PyObject *type)
{
    return value != NULL && PyObject_IsInstance(value, type) == 1;
}

static int soft_pin_action_set(PyObject *object, PyObject *value, void *none)
{
    (void)none;
    if (!is_member(value, mc_state_of(object)->soft_pin_action)) {
        return refuse("soft_pin_action", "mooncake.store.SoftPinAction");
    }
    replace(&config_of(object)->soft_pin_action, Py_NewRef(value));
    return 0;
}

static PyObject *data_type_get(PyObject *object, void *none)
{
    (void)none;
    return Py_NewRef(config_of(object)->data_type);
}

static int data_type_set(PyObject *object, PyObject *value, void *none)
{
    (void)none;
    if (!is_member(value, mc_state_of(object)->data_type)) {
        return refuse("data_type", "mooncake.store.ObjectDataType");
    }
    replace(&config_of(object)->data_type, Py_NewRef(value));
    return 0;
}

static PyObject *soft_pin_ttl_get(PyObject *object, void *none)
{
    const struct mc_config *self = config_of(object);
    (void)none;
    return self->soft_pin_ttl_given ? PyLong_FromUnsignedLongLong(self->soft_pin_ttl_ms)
                                    : Py_NewRef(Py_None);
}

static int soft_pin_ttl_set(PyObject *object, PyObject *value, void *none)
{
    struct mc_config *self = config_of(object);
    uint64_t number = 0;
    (void)none;
    if (value == NULL || (value != Py_None && !sl_glue_u64(value, &number))) {
        return refuse("soft_pin_ttl_ms", "int | None");
    }
    self->soft_pin_ttl_given = value != Py_None;
    self->soft_pin_ttl_ms = number;
    return 0;
}

/* The releases' boolean: ENABLE, or PRESERVE. */
static PyObject *with_soft_pin_get(PyObject *object, void *none)
{
    (void)none;
    return PyBool_FromLong(enum_number(config_of(object)->soft_pin_action) == SL_STORE_PIN_ENABLE);
}

static int with_soft_pin_set(PyObject *object, PyObject *value, void *none)
{
    (void)none;
    if (value != Py_True && value != Py_False) {
        return refuse("with_soft_pin", "bool");
    }
    PyObject *member =
        enum_member(mc_state_of(object)->soft_pin_action, value == Py_True ? "ENABLE" : "PRESERVE");
    if (member == NULL) {
        return -1;
    }
    replace(&config_of(object)->soft_pin_action, member);
    return 0;
}

static PyObject *config_text(PyObject *object)
{
    const struct mc_config *self = config_of(object);
    PyObject *ttl = soft_pin_ttl_get(object, NULL);
    PyObject *text =
        ttl == NULL
            ? NULL
            : PyUnicode_FromFormat(
                  "ReplicateConfig: { replica_num: %" PRIu64 ", nof_replica_num: %" PRIu64
                  ", dfs_replica_num: "
                  "%" PRIu64 ", soft_pin_action: %S, soft_pin_ttl_ms: %S, with_hard_pin: %s, "
                  "preferred_segments: %R, preferred_segment: %R, prefer_alloc_in_same_node: %s, "
                  "data_type: %S, group_ids: %R }",
                  self->replica_num, self->nof_replica_num, self->dfs_replica_num,
                  self->soft_pin_action, ttl, self->with_hard_pin ? "true" : "false",
                  self->preferred_segments, self->preferred_segment,
                  self->prefer_alloc_in_same_node ? "true" : "false", self->data_type,
                  self->group_ids);
    Py_XDECREF(ttl);
    return text;
}

/* ---- what a call takes of it ---- */

void mc_terms_release(struct mc_terms *terms)
{
    PyMem_Free((void *)terms->segments);
    PyMem_Free(terms->groups);
    Py_CLEAR(terms->held_segments);
    Py_CLEAR(terms->held_groups);
    terms->segments = NULL;
    terms->groups = NULL;
}

static bool segments_take(const struct mc_config *config, struct mc_terms *out)
{
    struct sl_object_key single;
    if (!mc_string_take(config->preferred_segment, &single)) {
        return false;
    }
    out->held_segments = single.length != 0 ? PyTuple_Pack(1, config->preferred_segment)
                                            : Py_NewRef(config->preferred_segments);
    Py_ssize_t count = out->held_segments == NULL ? -1 : PyTuple_Size(out->held_segments);
    if (count <= 0) {
        return count == 0;
    }
    out->segments = PyMem_Calloc((size_t)count, sizeof *out->segments);
    if (out->segments == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        out->segments[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(out->held_segments, i), NULL);
        if (out->segments[i] == NULL) {
            return false;
        }
    }
    out->terms.segments = out->segments;
    out->terms.segment_count = (uint32_t)count;
    return true;
}

static bool groups_take(const struct mc_config *config, struct mc_terms *out)
{
    if (config->group_ids == Py_None) {
        return true;
    }
    out->held_groups = Py_NewRef(config->group_ids);
    Py_ssize_t count = PyTuple_Size(out->held_groups);
    out->groups = PyMem_Calloc((size_t)count + 1, sizeof *out->groups);
    if (out->groups == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!mc_string_take(PyTuple_GetItem(out->held_groups, i), &out->groups[i])) {
            return false;
        }
    }
    out->terms.groups = out->groups;
    out->terms.group_count = (uint32_t)count;
    return true;
}

static uint32_t at_most_u32(uint64_t number)
{
    return number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
}

bool mc_terms_take(PyObject *object, struct mc_state *state, struct mc_terms *out)
{
    *out = (struct mc_terms){.held_segments = NULL};
    if (Py_TYPE(object) != state->config) {
        return false;
    }
    const struct mc_config *config = config_of(object);
    long action = enum_number(config->soft_pin_action);
    out->terms = (struct sl_store_terms){
        .copies = at_most_u32(config->replica_num),
        .nof_copies = at_most_u32(config->nof_replica_num),
        .dfs_copies = at_most_u32(config->dfs_replica_num),
        .soft_pin = (enum sl_store_soft_pin)action,
        .soft_pin_ttl_given = config->soft_pin_ttl_given,
        .soft_pin_ttl_ms = config->soft_pin_ttl_ms,
        .hard_pin = config->with_hard_pin,
        .same_node = config->prefer_alloc_in_same_node,
    };
    if (action >= 0 && segments_take(config, out) && groups_take(config, out)) {
        return true;
    }
    mc_terms_release(out);
    return false;
}

/* ---- the type ---- */

#define CLOSURE(field) (void *)(uintptr_t)(field)
static PyGetSetDef config_attributes[] = {
    {"replica_num", number_get, number_set, "Copies in memory that are wanted; at least one.",
     CLOSURE(&field_replica_num)},
    {"nof_replica_num", number_get, number_set, "NVMe-oF copies; there are none here.",
     CLOSURE(&field_nof_replica_num)},
    {"dfs_replica_num", number_get, number_set, "Copies on shared file systems; none here.",
     CLOSURE(&field_dfs_replica_num)},
    {"soft_pin_action", soft_pin_action_get, soft_pin_action_set, "A SoftPinAction.", NULL},
    {"soft_pin_ttl_ms", soft_pin_ttl_get, soft_pin_ttl_set, "With ENABLE only; None: 30 minutes.",
     NULL},
    {"with_soft_pin", with_soft_pin_get, with_soft_pin_set,
     "As releases have it: soft_pin_action is ENABLE.", NULL},
    {"with_hard_pin", flag_get, flag_set, "Never evicted.", CLOSURE(&field_with_hard_pin)},
    {"preferred_segments", texts_get, texts_set, "Tried in order before anything else.",
     CLOSURE(&field_preferred_segments)},
    {"preferred_nof_segments", texts_get, texts_set, "Kept, and not looked at.",
     CLOSURE(&field_preferred_nof_segments)},
    {"preferred_segment", preferred_segment_get, preferred_segment_set,
     "Wins over preferred_segments when it is not empty.", NULL},
    {"prefer_alloc_in_same_node", flag_get, flag_set,
     "Of calls with many buffers and of sessions only.", CLOSURE(&field_same_node)},
    {"data_type", data_type_get, data_type_set, "An ObjectDataType: a label.", NULL},
    {"group_ids", group_ids_get, group_ids_set,
     "None, or one for each key of the batch; \"\": no group.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot config_slots[] = {
    {Py_tp_doc, "How a value is stored."},   {Py_tp_new, (void *)config_new},
    {Py_tp_dealloc, (void *)config_dealloc}, {Py_tp_getset, config_attributes},
    {Py_tp_repr, (void *)config_text},       {0, NULL},
};
PyType_Spec mc_config_spec = {
    .name = "mooncake.store.ReplicateConfig",
    .basicsize = sizeof(struct mc_config),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = config_slots,
};
