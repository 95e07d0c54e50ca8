// See in_place.h.
#include "in_place.h"

#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "paddle/phi/common/memory_utils.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/kernel_factory.h"

namespace sim {
namespace {

// The memory that a result had before the CPU's kernel.
struct Kept {
  const phi::DenseTensor* tensor;
  std::shared_ptr<phi::Allocation> memory;
  size_t offset;
};

// Of the operator that this thread runs. Paddle calls, in this order: select, results, the kernel, to_card for each result.
// Lists of results stand by themselves: Paddle computes them in other tensors, which it assigns to the results at the end.
thread_local std::vector<Kept> kept_memory;
thread_local std::deque<std::vector<Kept>> kept_lists;
thread_local bool is_on_cpu = false;

void keep(const phi::DenseTensor* result, std::vector<Kept>& kept) {
  if (!is_on_cpu || result == nullptr || !result->initialized() || !result->meta().is_contiguous()) return;
  const phi::Place& place = result->place();
  if (place.GetType() != phi::AllocationType::CUSTOM || place.GetDeviceType() != "sim") return;
  kept.push_back({result, result->Holder(), result->meta().offset});
}

// Puts what the CPU computed where the tensor was. False when it does not fit there.
bool is_put_back(const Kept& kept, phi::DenseTensor* result) {
  const size_t bytes = result->numel() * phi::SizeOf(result->dtype());
  if (bytes == 0 || !result->meta().is_contiguous() || bytes + kept.offset > kept.memory->size()) return false;
  if (result->Holder() != kept.memory) {
    // As Paddle's copy to the card: the host waits for it.
    phi::memory_utils::Copy(kept.memory->place(), static_cast<char*>(kept.memory->ptr()) + kept.offset, result->place(),
                            result->data(), bytes, nullptr);
  }
  phi::DenseTensorMeta meta = result->meta();
  meta.offset = kept.offset;
  result->ShareDataWith(phi::DenseTensor(kept.memory, meta));  // an assignment would also begin its version again
  return true;
}

// paddle::experimental::TransDataBackend
using ToCard = void(const phi::DenseTensor*, phi::Backend, phi::DenseTensor*);
ToCard* to_card_of_paddle = nullptr;

void to_card(const phi::DenseTensor* computed, phi::Backend backend, phi::DenseTensor* result) {
  const auto kept =
      std::find_if(kept_memory.begin(), kept_memory.end(), [&](const Kept& each) { return each.tensor == result; });
  if (computed != result || kept == kept_memory.end()) return to_card_of_paddle(computed, backend, result);
  if (!result->initialized() || !is_put_back(*kept, result)) to_card_of_paddle(computed, backend, result);
  kept_memory.erase(kept);
}

// The same of a list of results.
using ListToCard = void(const std::vector<phi::DenseTensor*>&, phi::Backend, std::vector<phi::DenseTensor*>);
ListToCard* list_to_card_of_paddle = nullptr;

void list_to_card(const std::vector<phi::DenseTensor*>& computed, phi::Backend backend,
                  std::vector<phi::DenseTensor*> results) {
  std::vector<Kept> kept;
  if (!kept_lists.empty()) {
    kept = std::move(kept_lists.front());
    kept_lists.pop_front();
  }
  for (size_t each = 0; each < computed.size(); ++each) {
    phi::DenseTensor* result = results[each];
    const bool is_kept = kept.size() == computed.size() && computed[each] == result && result != nullptr &&
                         result->initialized() && kept[each].tensor->dims() == result->dims();
    if (!is_kept || !is_put_back(kept[each], result)) to_card_of_paddle(computed[each], backend, result);
  }
}

// phi::KernelFactory::SelectKernelOrThrowError, with which each operator begins. What a copy of a view needs is selected within
// another operator.
using Select = phi::KernelResult(const phi::KernelFactory*, const std::string&, const phi::KernelKey&, bool);
Select* select_of_paddle = nullptr;

phi::KernelResult select(const phi::KernelFactory* factory, const std::string& name, const phi::KernelKey& key, bool strided) {
  const phi::KernelResult selected = select_of_paddle(factory, name, key, strided);
  if (name != "contiguous" && name != "strided_copy") {
    kept_memory.clear();
    kept_lists.clear();
    is_on_cpu = selected.has_fallback_cpu;
  }
  return selected;
}

// paddle::experimental::SetKernelOutput of a tensor and of pointers to tensors, SetInplaceVectorKernelOutput and
// SetInplaceOptionalVectorKernelOutput. All arguments but the number are pointers or references to Paddle's tensors.
using Result = phi::DenseTensor*(void*);
using Results = std::vector<phi::DenseTensor*>(void*);
using CountedResults = std::vector<phi::DenseTensor*>(size_t, void*);
Result* result_of_paddle = nullptr;
Results* results_of_paddle = nullptr;
CountedResults *list_of_paddle = nullptr, *optional_list_of_paddle = nullptr;

phi::DenseTensor* result(void* tensor) {
  phi::DenseTensor* found = result_of_paddle(tensor);
  keep(found, kept_memory);
  return found;
}

std::vector<phi::DenseTensor*> all_kept(std::vector<phi::DenseTensor*> found) {
  kept_lists.emplace_back();
  for (const phi::DenseTensor* each : found) keep(each, kept_lists.back());
  return found;
}

std::vector<phi::DenseTensor*> results(void* tensors) { return all_kept(results_of_paddle(tensors)); }
std::vector<phi::DenseTensor*> list(size_t count, void* tensors) { return all_kept(list_of_paddle(count, tensors)); }
std::vector<phi::DenseTensor*> optional_list(size_t count, void* tensors) {
  return all_kept(optional_list_of_paddle(count, tensors));
}

struct Replacement {
  const char* name;
  void* by;
  void** of_paddle;
};

#define XPULAB_REPLACEMENT(name, by, of_paddle) {name, reinterpret_cast<void*>(by), reinterpret_cast<void**>(&of_paddle)}
const Replacement kReplacements[] = {
    XPULAB_REPLACEMENT("_ZN6paddle12experimental16TransDataBackendEPKN3phi11DenseTensorENS0_7BackendEPS2_", to_card,
                       to_card_of_paddle),
    XPULAB_REPLACEMENT("_ZN6paddle12experimental16TransDataBackendERKSt6vectorIPN3phi11DenseTensorESaIS4_EENS0_7BackendES6_",
                       list_to_card, list_to_card_of_paddle),
    XPULAB_REPLACEMENT(
        "_ZNK3phi13KernelFactory24SelectKernelOrThrowErrorERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
        "RKNS_9KernelKeyEb",
        select, select_of_paddle),
    XPULAB_REPLACEMENT("_ZN6paddle12experimental15SetKernelOutputEPNS_6TensorE", result, result_of_paddle),
    XPULAB_REPLACEMENT("_ZN6paddle12experimental15SetKernelOutputEPSt6vectorIPNS_6TensorESaIS3_EE", results, results_of_paddle),
    XPULAB_REPLACEMENT("_ZN6paddle12experimental28SetInplaceVectorKernelOutputEmPSt6vectorINS_6TensorESaIS2_EE", list,
                       list_of_paddle),
    XPULAB_REPLACEMENT(
        "_ZN6paddle12experimental36SetInplaceOptionalVectorKernelOutputEmRKNS_8optionalISt6vectorINS_6TensorESaIS3_"
        "EEEE",
        optional_list, optional_list_of_paddle),
};
#undef XPULAB_REPLACEMENT

// By name how often a call was redirected.
size_t redirected[std::size(kReplacements)] = {};

bool write_address(ElfW(Addr) at, void* address) {
  const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
  // A wheel may be linked so that this table is read-only once it is filled.
  if (mprotect(reinterpret_cast<void*>(at & ~(page - 1)), page, PROT_READ | PROT_WRITE) != 0) return false;
  std::memcpy(reinterpret_cast<void*>(at), &address, sizeof(address));
  return true;
}

// Replaces the functions where a library calls them through its table of other libraries' functions.
int replace_in(dl_phdr_info* library, size_t, void*) {
  if (library->dlpi_name == nullptr || std::strstr(library->dlpi_name, "paddle/") == nullptr) return 0;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int each = 0; each < library->dlpi_phnum; ++each) {
    if (library->dlpi_phdr[each].p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(library->dlpi_addr + library->dlpi_phdr[each].p_vaddr);
    }
  }
  const ElfW(Rela)* table = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  size_t bytes = 0;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_JMPREL) table = reinterpret_cast<const ElfW(Rela)*>(dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_PLTRELSZ) bytes = dynamic->d_un.d_val;
  }
  if (table == nullptr || symbols == nullptr || names == nullptr) return 0;
  for (size_t each = 0; each < bytes / sizeof(*table); ++each) {
    const char* name = names + symbols[ELF64_R_SYM(table[each].r_info)].st_name;
    for (size_t of = 0; of < std::size(kReplacements); ++of) {
      if (std::strcmp(name, kReplacements[of].name) != 0) continue;
      redirected[of] += write_address(library->dlpi_addr + table[each].r_offset, kReplacements[of].by);
    }
  }
  return 0;
}

}  // namespace

void keep_memory_of_operators_in_place() {
  if (to_card_of_paddle != nullptr) return;
  std::vector<void*> found;
  for (const Replacement& each : kReplacements) found.push_back(dlsym(RTLD_DEFAULT, each.name));
  if (std::find(found.begin(), found.end(), nullptr) == found.end()) {
    for (size_t each = 0; each < found.size(); ++each) *kReplacements[each].of_paddle = found[each];
    dl_iterate_phdr(replace_in, nullptr);
  }
  if (std::find(std::begin(redirected), std::end(redirected), size_t{0}) != std::end(redirected)) {
    std::fprintf(stderr,
                 "xpulab sim: this wheel has no calls that operators in place need here; their results leave their buffers\n");
  }
}

}  // namespace sim
