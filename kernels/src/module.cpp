// The module `pellucid_kernels._kernels`: the kernels by their addresses. Its only caller, `pellucid.native`, has
// tensors; a number here is a pointer, a size or a stride in numbers of the tensor's type.
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "attention.h"
#include "decoder.h"
#include "pointwise.h"
#include "product.h"
#include "sampler.h"
#include "team.h"

namespace pellucid {
namespace {

// Changes with the functions of this module and what they are given; `pellucid.native` asks for the one it knows.
constexpr int INTERFACE = 1;

constexpr int MOST_ARGUMENTS = 32;

// The arguments of one call, taken in order.
class Arguments {
  public:
    Arguments(PyObject *const *given, Py_ssize_t count, Py_ssize_t expected) {
        if (count != expected) {
            PyErr_Format(PyExc_TypeError, "%zd arguments are needed, not %zd", expected, count);
            return;
        }
        for (Py_ssize_t i = 0; i < count; ++i) values_[i] = PyLong_AsLongLong(given[i]);
        good_ = !PyErr_Occurred();
    }
    explicit operator bool() const { return good_; }
    template <class T>
    T *pointer() {
        return reinterpret_cast<T *>(values_[next_++]);
    }
    long number() { return (long)values_[next_++]; }

  private:
    long long values_[MOST_ARGUMENTS];
    int next_ = 0;
    bool good_ = false;
};

template <class Job>
PyObject *without_lock(Job &&job) {
    bool done = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        job();
    } catch (...) {  // no exception may pass through Python's own frames
        done = false;
    }
    Py_END_ALLOW_THREADS;
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

#if defined(__x86_64__)
bool has_vectors() {  // FMA and F16C come with them
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool multiplies_bfloat16() {  // leaf 7.1, bit 5 of EAX: not every compiler's __builtin_cpu_supports knows it
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

PyObject *features(PyObject *, PyObject *) {
    if (!has_vectors()) return PyUnicode_FromString("");
    return PyUnicode_FromString(multiplies_bfloat16() ? "avx512 avx512_bf16" : "avx512");
}

PyObject *set_threads(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 1);
    if (!the) return nullptr;
    set_team_size((int)the.number());
    Py_RETURN_NONE;
}

PyObject *panel_size(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 2);
    if (!the) return nullptr;
    const Weight kind = (Weight)the.number();
    return PyLong_FromSize_t(panel_bytes(kind, (int)the.number()));
}

PyObject *pack_weights(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 8);
    if (!the) return nullptr;
    const Weight kind = (Weight)the.number();
    const void *source = the.pointer<void>();
    const bool least = the.number();
    const int width = (int)the.number(), depth = (int)the.number();
    char *to = the.pointer<char>();
    const int at = (int)the.number(), step = (int)the.number();
    return without_lock([&] { pack(kind, source, least, width, depth, to, at, step); });
}

PyObject *unpack(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 6);
    if (!the) return nullptr;
    const Weight kind = (Weight)the.number();
    const char *w = the.pointer<char>();
    const int depth = (int)the.number();
    const int64_t *rows = the.pointer<int64_t>();
    const int how_many = (int)the.number();
    void *out = the.pointer<void>();
    return without_lock([&] { unpack_rows(kind, w, depth, rows, how_many, out); });
}

PyObject *product(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 11);
    if (!the) return nullptr;
    Product job;
    job.kind = (Weight)the.number();
    job.x = the.pointer<void>(), job.x_stride = the.number(), job.rows = (int)the.number();
    job.w = the.pointer<char>(), job.width = (int)the.number(), job.depth = (int)the.number();
    job.out = the.pointer<void>(), job.out_stride = the.number(), job.into = (Into)the.number();
    job.bias = the.pointer<float>();
    return without_lock([&] { multiply(job); });
}

template <class T>
PyObject *norm_of(Arguments &the, float epsilon) {
    const T *x = the.pointer<T>();
    const long x_stride = the.number();
    const T *weight = the.pointer<T>();
    T *out = the.pointer<T>();
    const long out_stride = the.number();
    const int rows = (int)the.number(), width = (int)the.number();
    return without_lock([&] { rms_norm(x, x_stride, weight, out, out_stride, rows, width, epsilon); });
}

// The last argument is a float.
PyObject *norm(PyObject *, PyObject *const *given, Py_ssize_t count) {
    const double epsilon = count ? PyFloat_AsDouble(given[count - 1]) : 0;
    Arguments the(given, count ? count - 1 : 0, 8);
    if (!the || PyErr_Occurred()) return nullptr;
    return the.number() ? norm_of<uint16_t>(the, (float)epsilon) : norm_of<float>(the, (float)epsilon);
}

template <class T>
PyObject *rotation_of(Arguments &the) {
    T *x = the.pointer<T>();
    const long stride = the.number();
    const int rows = (int)the.number(), heads = (int)the.number(), dim = (int)the.number();
    const float *cosines = the.pointer<float>(), *sines = the.pointer<float>();
    return without_lock([&] { rotate(x, stride, rows, heads, dim, cosines, sines); });
}

PyObject *rotation(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 8);
    if (!the) return nullptr;
    return the.number() ? rotation_of<uint16_t>(the) : rotation_of<float>(the);
}

PyObject *best(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 5);
    if (!the) return nullptr;
    const float *x = the.pointer<float>();
    const long stride = the.number();
    const int rows = (int)the.number(), width = (int)the.number();
    int64_t *out = the.pointer<int64_t>();
    return without_lock([&] { argmax(x, stride, rows, width, out); });
}

PyObject *drawing(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 12);
    if (!the) return nullptr;
    Draws draws;
    draws.x = the.pointer<float>(), draws.stride = the.number(), draws.width = (int)the.number();
    draws.rows = the.pointer<int64_t>(), draws.count = (int)the.number();
    draws.temperature = the.pointer<float>(), draws.top_k = the.pointer<int64_t>();
    draws.top_p = the.pointer<float>(), draws.min_p = the.pointer<float>();
    draws.keys = the.pointer<int64_t>();
    draws.tokens = the.pointer<int64_t>(), draws.decisions = the.pointer<Decision>();
    return without_lock([&] { draw(draws); });
}

// Where the tokens of the step stand, and the sizes of its heads.
template <class T>
void take_layout(Arguments &the, Attention<T> &step) {
    step.slots = the.pointer<int64_t>();
    step.query_start = the.pointer<int32_t>(), step.contexts = the.pointer<int32_t>();
    step.tables = the.pointer<int32_t>(), step.table_stride = the.number();
    step.tokens = (int)the.number(), step.requests = (int)the.number(), step.block_size = (int)the.number();
    step.heads = (int)the.number(), step.kv_heads = (int)the.number(), step.dim = (int)the.number();
}

template <class T>
PyObject *attention_of(Arguments &the) {
    Attention<T> step;
    step.q = the.pointer<T>(), step.q_stride = the.number();
    step.k = the.pointer<T>(), step.k_stride = the.number();
    step.v = the.pointer<T>(), step.v_stride = the.number();
    step.k_pool = the.pointer<T>(), step.v_pool = the.pointer<T>();
    step.out = the.pointer<T>(), step.out_stride = the.number();
    take_layout(the, step);
    return without_lock([&] { attend(step); });
}

PyObject *attention(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 22);
    if (!the) return nullptr;
    return the.number() ? attention_of<uint16_t>(the) : attention_of<float>(the);
}

Matrix matrix_of(Arguments &the) {
    Matrix m;
    m.kind = (Weight)the.number(), m.w = the.pointer<char>();
    m.width = (int)the.number(), m.depth = (int)the.number();
    m.bias = the.pointer<float>();
    return m;
}

PyObject *layer_bytes(PyObject *, PyObject *) { return PyLong_FromSize_t(sizeof(DecoderLayer)); }

// Describe one layer, in memory of the caller's.
PyObject *describe_layer(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments the(given, count, 25);
    if (!the) return nullptr;
    DecoderLayer &layer = *the.pointer<DecoderLayer>();
    layer.input_norm = the.pointer<void>(), layer.mlp_norm = the.pointer<void>();
    layer.q_norm = the.pointer<void>(), layer.k_norm = the.pointer<void>();
    layer.qkv = matrix_of(the), layer.output = matrix_of(the), layer.gate_up = matrix_of(the),
    layer.down = matrix_of(the);
    Py_RETURN_NONE;
}

template <class T>
PyObject *decoding_of(Arguments &the, float epsilon) {
    Decoder<T> decoder;
    decoder.layers = the.pointer<DecoderLayer>(), decoder.count = (int)the.number();
    decoder.x = the.pointer<T>(), decoder.width = (int)the.number(), decoder.epsilon = epsilon;
    decoder.cosines = the.pointer<float>(), decoder.sines = the.pointer<float>();
    decoder.pool = the.pointer<T>(), decoder.half_layer = the.number();
    take_layout(the, decoder.step);
    return without_lock([&] { decode(decoder); });
}

// The last argument is a float.
PyObject *decoding(PyObject *, PyObject *const *given, Py_ssize_t count) {
    const double epsilon = count ? PyFloat_AsDouble(given[count - 1]) : 0;
    Arguments the(given, count ? count - 1 : 0, 20);
    if (!the || PyErr_Occurred()) return nullptr;
    return the.number() ? decoding_of<uint16_t>(the, (float)epsilon) : decoding_of<float>(the, (float)epsilon);
}

#define FAST(name, function) \
    { name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, nullptr }
PyMethodDef methods[] = {{"features", features, METH_NOARGS, "What this processor has, of what the kernels need."},
                         FAST("set_threads", set_threads),
                         FAST("panel_bytes", panel_size),
                         FAST("pack", pack_weights),
                         FAST("unpack_rows", unpack),
                         FAST("product", product),
                         FAST("rms_norm", norm),
                         FAST("rotate", rotation),
                         FAST("argmax", best),
                         FAST("draw", drawing),
                         FAST("attention", attention),
                         {"layer_bytes", layer_bytes, METH_NOARGS, "Bytes of the description of a layer."},
                         FAST("describe_layer", describe_layer),
                         FAST("decode", decoding),
                         {nullptr, nullptr, 0, nullptr}};
#else
PyObject *features(PyObject *, PyObject *) { return PyUnicode_FromString(""); }
PyMethodDef methods[] = {{"features", features, METH_NOARGS, "Nothing: the kernels are for x86-64."},
                         {nullptr, nullptr, 0, nullptr}};
#endif

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_kernels",
                          "Kernels for x86-64 with AVX-512, by address.",
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace pellucid

PyMODINIT_FUNC PyInit__kernels() {
    PyObject *module = PyModule_Create(&pellucid::definition);
    if (module && PyModule_AddIntConstant(module, "INTERFACE", pellucid::INTERFACE) < 0) Py_CLEAR(module);
    return module;
}
