/* Splits a query into words of the index. Between Chinese words there is no space: of the words that a run of Chinese characters
   begins with, the longest is taken, then the same of the rest. A character that begins no word is left out. */
var splitQuery = (query) => {
  const isWord = (text) => Object.hasOwn(Search._index.terms, text) || Object.hasOwn(Search._index.titleterms, text);
  const words = [];
  for (const run of query.match(/\p{Script=Han}+|(?:(?!\p{Script=Han})[\p{Letter}\p{Number}_])+/gu) || []) {
    if (!/\p{Script=Han}/u.test(run)) {
      words.push(run);
      continue;
    }
    for (let start = 0; start < run.length; ) {
      let end = run.length;
      while (end > start + 1 && !isWord(run.slice(start, end))) end--;
      if (end > start + 1) words.push(run.slice(start, end));
      start = end;
    }
  }
  return words;
};
